#!/bin/sh
# pack.sh: fills FOLDER with everything that run.sh and sanitize.sh need on another machine: programs, compiled kernels,
# goldens. Run it from the root of the source tree, on a machine with a C compiler and NVRTC ($EXL2_NVRTC); it needs no
# GPU:
#   tests/device/pack.sh FOLDER [ARCH ...]     ARCH: 90 (default), 75, 80, 86, 89, 100, 120
# 90 makes machine code for compute capability 9.0. Any other ARCH makes PTX of that kind of GPU in FOLDER/kernels-ARCH,
# which another GPU runs with EXL2_TEST_ARCH=ARCH (other_gpu.h). For a real GPU of that kind, add its machine code there
# or here: FOLDER/build_kernels FOLDER/kernels ARCH.
# On the other machine: cd FOLDER && tests/device/run.sh .
set -e
folder=$1
shift
mkdir -p "$folder/made/private" "$folder/tests/golden"
${CC:-cc} -O1 -o "$folder/made/embed" exl2_impl/tools/embed.c
"$folder/made/embed" kernels_src "$folder/made/exl2_kernels.inc" "$folder/made/exl2_kernels.d"
${CC:-cc} -O1 -o "$folder/made/declare" exl2_impl/tools/declare.c
"$folder/made/declare" "$PWD" "$folder/made/private"
"$folder/made/embed" --texts "$folder/made/exl2_texts.inc" exl2_impl/8_convert/quantizer/spare_texts/*.txt

# compile FLAGS ...
compile() {
    ${CC:-cc} -std=c11 -O2 -I. -Itests -I"$folder/made" -Wno-unused-function -include tests/asserts.h \
        '-DEXL2_GOLDEN_DIR="tests/golden"' "$@"
}

# program NAME SOURCES [flags]: it links one compiled engine, as in tests/meson.build, but as a shared library, so that
# FOLDER has the engine once
program() {
    name=$1
    shift
    compile -DEXL2__PRIVATE= -DEXL2_CONVERT= "$@" -L"$folder" -lengine -lptx "-Wl,-rpath,\$ORIGIN" -o "$folder/$name" \
        -lm -lpthread -ldl
}

# whole NAME SOURCES: it compiles the files of the engine that it includes
whole() {
    name=$1
    shift
    compile -DTEST_WHOLE "$@" -L"$folder" -lptx "-Wl,-rpath,\$ORIGIN" -o "$folder/$name" -lm -lpthread -ldl
}

compile -DTEST_WHOLE -fPIC -shared tests/ptx/ptx_*.c -o "$folder/libptx.so" -lm -lpthread -ldl
compile -DEXL2__PRIVATE= -DEXL2_CONVERT= -DTEST_WHOLE -fPIC -shared tests/engine.c tests/engine_rig.c \
    -L"$folder" -lptx "-Wl,-rpath,\$ORIGIN" -o "$folder/libengine.so" -lm -lpthread -ldl
for name in repack small steps exchange exchange_cards sample products gemm expert_gemm attend predict product_speed \
    convert convert_speed cards build_kernels exl3 exl3_experts towers tower_kernels steer_kinds \
    lora_gemm lora_gemv; do
    program $name tests/device/$name.c
done
program offload tests/device/offload.c demo/common/pool.c
program solve tests/unit/solve.c -DRIG_BACKEND=EXL2_BACKEND_CUDA
for name in golden mixed experts sampling guidance grammars bans replay snapshot forced drafts worker park prefix embed \
    loras lora_life steers soak grammar_real vision pictures; do
    program $name tests/engine/$name.c -DRIG_BACKEND=EXL2_BACKEND_CUDA
done
whole host tests/device/host.c
whole models tests/device/models.c
whole phases tests/device/phases.c tests/device/double_rounded.c tests/unit/cpu_double.c
for arch in "${@:-90}"; do
    kernels="$folder/kernels" other=
    [ "$arch" = 90 ] || kernels="$folder/kernels-$arch" other=$arch
    mkdir -p "$kernels"
    EXL2_TEST_ARCH=$other "$folder/build_kernels" "$kernels" "$arch"
    EXL2_TEST_ARCH=$other "$folder/build_kernels" "$kernels" "$arch" -DEXL2K_SLEEP=7
done
rm -rf "$folder/made" "$folder/shared" "$folder/kernels_src" "$folder/tests/golden" "$folder/tests/device"
mkdir -p "$folder/tests/golden" "$folder/tests/device"
cp -r kernels_src "$folder/"
for name in models convert embed steer video; do
    cp -r "tests/golden/$name" "$folder/tests/golden/"
done
cp tests/device/*.sh tests/device/exchange*.cu "$folder/tests/device/"
cp tests/grammar_judge.py "$folder/tests/"
shared=${EXL2_TEST_DATA:-../shared}
for name in exl2 arch convert/matrix exl3 lora embed vision; do # all that `golden shared`, `solve`, `loras` and others run
    if [ -d "$shared/fixtures/$name" ]; then
        mkdir -p "$(dirname "$folder/shared/fixtures/$name")"
        cp -r "$shared/fixtures/$name" "$folder/shared/fixtures/$name"
        rm -f "$folder/shared/fixtures/$name"/*/dequant.safetensors
    fi
done
chmod -R u+w "$folder"
du -sh "$folder"
