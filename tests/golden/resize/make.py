#!/usr/bin/env python3
"""Resizes pictures of noise with Pillow 11.3 (pip install pillow==11.3.0; newer ones take another order of the axes), and
writes sums of the results' bytes for tests/unit/resize.c:  make.py > hashes.txt"""
import PIL
from PIL import Image

assert PIL.__version__ == "11.3.0", PIL.__version__
SIZES = [  # width and height of the picture, then of the result
    (1, 1, 1, 1), (1, 1, 7, 5), (2, 1, 1, 2), (3, 3, 2, 2), (7, 5, 1, 1), (17, 150, 32, 160), (100, 75, 128, 96),
    (93, 61, 96, 64), (64, 64, 64, 64), (50, 70, 64, 64), (160, 21, 96, 16), (13, 13, 26, 26), (26, 26, 13, 13),
    (100, 10, 10, 100), (10, 100, 100, 10), (31, 200, 200, 31), (200, 31, 31, 200), (300, 2, 2, 300), (2, 300, 300, 2),
    (640, 4, 64, 64), (255, 257, 257, 255), (257, 255, 255, 257), (320, 240, 224, 224), (320, 180, 512, 288),
    (333, 111, 111, 333), (512, 288, 320, 180), (100, 100, 99, 101), (101, 99, 100, 100), (600, 400, 17, 19),
    (17, 19, 600, 400), (1000, 3, 3, 7), (3, 1000, 7, 3), (3000, 7, 28, 28), (7, 3000, 28, 28), (3000, 7, 600, 14),
    (128, 128, 896, 8), (8, 896, 128, 128), (400, 300, 400, 150), (400, 300, 200, 300), (1024, 5, 513, 6),
]
FILTERS = [Image.LANCZOS, Image.BILINEAR, Image.BICUBIC]


def noise(width, height):
    """Bytes of a linear congruence; every third pixel is black or white, so that results are clipped."""
    x, out = width * 65537 + height, bytearray()
    for i in range(width * height * 3):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        byte = x >> 24
        out.append((255 if byte & 1 else 0) if i // 3 % 3 == 0 else byte)
    return bytes(out)


def fnv(data):
    h = 14695981039346656037
    for byte in data:
        h = ((h ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return h


for w, h, W, H in SIZES:
    picture = Image.frombytes("RGB", (w, h), noise(w, h))
    sums = [fnv(picture.resize((W, H), f).tobytes()) for f in FILTERS]
    print(w, h, W, H, *(f"{s:016x}" for s in sums))
