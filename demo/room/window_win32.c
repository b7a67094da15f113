/* window_win32.c: the window under Windows.
   takes: user32 and gdi32.
   gives: what window.h declares.
   owns:  the window. */
#ifdef _WIN32
#include "window.h"

#include "../common/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define EVENTS 64 /* that wait; later ones are lost until the loop has read some */

struct window {
    HWND handle;
    window_event events[EVENTS]; /* [count] from `first` on, in a ring */
    uint32_t first, count;
    wchar_t high; /* first half of a UTF-16 pair, whose second half follows; 0 = none */
};

static void add_event(window *w, window_event event)
{
    if (w->count < EVENTS) {
        w->events[(w->first + w->count++) % EVENTS] = event;
    }
}

static window_key key_of(WPARAM code)
{
    switch (code) {
    case VK_LEFT: return KEY_LEFT;
    case VK_RIGHT: return KEY_RIGHT;
    case VK_UP: return KEY_UP;
    case VK_DOWN: return KEY_DOWN;
    case VK_RETURN: return KEY_ENTER;
    case VK_BACK: return KEY_BACKSPACE;
    case VK_DELETE: return KEY_DELETE;
    case VK_HOME: return KEY_HOME;
    case VK_END: return KEY_END;
    case VK_PRIOR: return KEY_PAGE_UP;
    case VK_NEXT: return KEY_PAGE_DOWN;
    case VK_ESCAPE: return KEY_ESCAPE;
    case VK_F1: return KEY_F1;
    case VK_F2: return KEY_F2;
    case VK_F3: return KEY_F3;
    case VK_F5: return KEY_F5;
    case VK_F9: return KEY_F9;
    default: return KEY_NONE;
    }
}

static void type(window *w, wchar_t unit)
{
    wchar_t text[2] = { w->high, unit };
    bool pair = w->high && (unit & 0xFC00) == 0xDC00;
    window_event event = { .key = KEY_TEXT, .down = true };
    w->high = (unit & 0xFC00) == 0xD800 ? unit : 0;
    if (unit >= ' ' && unit != 0x7F && !w->high) {
        WideCharToMultiByte(CP_UTF8, 0, pair ? text : text + 1, pair ? 2 : 1, event.text, sizeof event.text - 1, NULL,
                            NULL);
        add_event(w, event);
    }
}

static LRESULT CALLBACK on_message(HWND handle, UINT message, WPARAM word, LPARAM more)
{
    window *w = (window *)GetWindowLongPtrW(handle, GWLP_USERDATA);
    window_key key = message == WM_KEYDOWN || message == WM_KEYUP ? key_of(word) : KEY_NONE;
    if (!w) {
        return DefWindowProcW(handle, message, word, more);
    }
    if (key != KEY_NONE && (message == WM_KEYDOWN || key <= KEY_DOWN)) {
        add_event(w, (window_event){ .key = key, .down = message == WM_KEYDOWN });
        return 0;
    }
    if (message == WM_CHAR) {
        type(w, (wchar_t)word);
        return 0;
    }
    if (message == WM_CLOSE || message == WM_KILLFOCUS) {
        add_event(w, (window_event){ .key = message == WM_CLOSE ? KEY_CLOSE : KEY_BLUR, .down = true });
        return 0;
    }
    return DefWindowProcW(handle, message, word, more);
}

window *window_open(const char *title, const canvas *picture)
{
    wchar_t wide[128];
    HINSTANCE program = GetModuleHandleW(NULL);
    WNDCLASSW class = { .lpfnWndProc = on_message, .hInstance = program, .lpszClassName = L"exl2_room" };
    RECT size = { 0, 0, picture->width * 2, picture->height * 2 };
    window *w = memory_take(1, sizeof *w);
    class.hCursor = LoadCursorW(NULL, MAKEINTRESOURCEW(32512)); /* IDC_ARROW */
    class.hbrBackground = (HBRUSH)GetStockObject(BLACK_BRUSH);
    MultiByteToWideChar(CP_UTF8, 0, title, -1, wide, 128);
    AdjustWindowRect(&size, WS_OVERLAPPEDWINDOW, FALSE);
    if (RegisterClassW(&class)) {
        w->handle = CreateWindowExW(0, class.lpszClassName, wide, WS_OVERLAPPEDWINDOW, CW_USEDEFAULT, CW_USEDEFAULT,
                                    size.right - size.left, size.bottom - size.top, NULL, NULL, program, NULL);
    }
    if (!w->handle) {
        fprintf(stderr, "there is no display (error %lu); npc is the same game for a console\n", GetLastError());
        free(w);
        return NULL;
    }
    SetWindowLongPtrW(w->handle, GWLP_USERDATA, (LONG_PTR)w);
    ShowWindow(w->handle, SW_SHOWNORMAL);
    return w;
}

bool window_next(window *w, window_event *out)
{
    MSG message;
    while (w->count == 0 && PeekMessageW(&message, NULL, 0, 0, PM_REMOVE)) {
        TranslateMessage(&message);
        DispatchMessageW(&message);
    }
    if (w->count == 0) {
        return false;
    }
    *out = w->events[w->first];
    w->first = (w->first + 1) % EVENTS;
    w->count--;
    return true;
}

void window_show(window *w, const canvas *picture)
{
    RECT size;
    BITMAPINFO info = { .bmiHeader = { .biSize = sizeof(BITMAPINFOHEADER), .biWidth = picture->width,
                                       .biHeight = -picture->height, /* the first row is the top one */
                                       .biPlanes = 1, .biBitCount = 32, .biCompression = BI_RGB } };
    HDC to = GetDC(w->handle);
    GetClientRect(w->handle, &size);
    int across = size.right / picture->width, down = size.bottom / picture->height;
    int scale = across < down ? across : down;
    scale = scale < 1 ? 1 : scale;
    int width = picture->width * scale, height = picture->height * scale;
    StretchDIBits(to, (size.right - width) / 2, (size.bottom - height) / 2, width, height, 0, 0, picture->width,
                  picture->height, picture->pixels, &info, DIB_RGB_COLORS, SRCCOPY);
    ReleaseDC(w->handle, to);
}

void window_close(window *w)
{
    if (w) {
        SetWindowLongPtrW(w->handle, GWLP_USERDATA, 0);
        DestroyWindow(w->handle);
        free(w);
    }
}
#else
typedef int window_win32_is_empty; /* C has no empty file */
#endif
