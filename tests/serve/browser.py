"""browser.py: chromium for tests of the page: things are found by their role and accessible name, as screen readers do.
takes: selenium, chromium and chromedriver; without them `skip_reason` says which one is missing. If the package
       axe_core_python is there, axe judges the page, too.
gives: Browser, skip_reason."""

import importlib.util
import json
import pathlib
import shutil
import time

try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = Keys = None

WATCHDOG_S = 30 # of a wait; what is waited for takes some milliseconds

# Elements that can have a role.
SELECTORS = {
    "button": "button", "tab": "[role=tab]", "textbox": "textarea, input", "list": "ul", "article": "article",
    "status": "[role=status]", "alert": "[role=alert]", "dialog": "dialog", "checkbox": "input[type=checkbox]",
    "slider": "input[type=range]", "combobox": "select", "spinbutton": "input[type=number]", "listitem": "li",
    "option": "option",
}

# The ratio of the colours of each text that is seen and of what is behind it, where it is below 4.5 (3 for large text).
# A translucent layer is mixed with what is under it. Controls that are switched off are left out, as WCAG does.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (text) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
};
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (node) => { const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
const bad = []; let seen = 0;
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const texts = [];
while (walk.nextNode()) if (walk.currentNode.data.trim()) texts.push([walk.currentNode.parentElement, null]);
for (const box of document.querySelectorAll('input, textarea, select')) {
  texts.push([box, box.placeholder && !box.value]);
}
for (const [node, pseudo] of texts) {
  const style = getComputedStyle(node);
  if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest(':disabled, noscript')
      || node.getBoundingClientRect().width < 2 || style.clipPath !== 'none') continue;
  const ground = behind(node), colour = rgba(pseudo ? getComputedStyle(node, '::placeholder').color : style.color);
  const [a, b] = [light(over(colour, ground)), light(ground)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  seen++;
  const what = `${node.tagName} ${node.textContent.trim().slice(0, 40)}`;
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${what}`);
}
return [seen, bad];
"""

# What sticks out at the sides, unless a box around it scrolls.
SIDEWAYS = """
const width = document.documentElement.clientWidth, bad = [];
if (document.documentElement.scrollWidth > width) bad.push('the page: ' + document.documentElement.scrollWidth);
const scrolls = (node) => {
  for (let at = node.parentElement; at; at = at.parentElement) {
    if (getComputedStyle(at).overflowX === 'auto') return at.getBoundingClientRect().right <= width + 0.5;
  }
  return false;
};
for (const node of document.querySelectorAll('body *')) {
  const box = node.getBoundingClientRect();
  if (box.width > 1 && node.checkVisibility({ visibilityProperty: true }) && !node.closest('.hidden, .skip')
      && (box.right > width + 0.5 || box.left < -0.5) && !scrolls(node)) bad.push(node.tagName + '.' + node.className);
}
return bad;
"""


def skip_reason():
    if webdriver is None:
        return "selenium is not installed"
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


class Browser:
    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars",
                     "window-size=1280,800", "no-proxy-server", "disable-background-networking"):
            options.add_argument("--" + flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        self.addresses = []
        self.size(1280, 800)

    def close(self):
        self.driver.quit()

    # ---- the window ----

    def open(self, address):
        self.driver.get(address)

    def size(self, width, height, scale=1):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": False})

    def prefer(self, **features):
        """Media features, such as prefers_color_scheme="dark"."""
        given = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": given})

    def shot(self, path):
        self.driver.save_screenshot(str(path))

    def script(self, text, *values):
        return self.driver.execute_script(text, *values)

    # ---- finding ----

    def all(self, role, name=None, within=None):
        """The elements that are seen, with this role and accessible name."""
        found = []
        for node in (within or self.driver).find_elements("css selector", SELECTORS[role]):
            try:
                if node.is_displayed() and node.aria_role == role and name in (None, node.accessible_name):
                    found.append(node)
            except StaleElementReferenceException:
                continue # it has been drawn anew since
        return found

    def one(self, role, name=None, within=None):
        """The only such element; waits for it."""
        def only():
            found = self.all(role, name, within)
            return found[0] if len(found) == 1 else None
        return self.wait(only, f"one {role} {name}")

    def wait(self, what, name):
        end = time.monotonic() + WATCHDOG_S
        while True:
            try:
                value = what()
            except StaleElementReferenceException:
                value = None
            if value or time.monotonic() > end:
                break
            time.sleep(0.03)
        if not value:
            raise AssertionError(f"waited {WATCHDOG_S} s for: {name}")
        return value

    def state(self):
        return self.script("return document.body.dataset.state")

    def wait_state(self, state):
        self.wait(lambda: self.state() == state, f"state {state}")

    def texts(self):
        """The texts of the messages that are shown."""
        return self.script("return [...document.querySelectorAll('article')].map((a) => "
                           "(a.querySelector('.text') || a).textContent.trim())")

    # ---- doing ----

    def click(self, role, name, within=None):
        self.wait(lambda: self.one(role, name, within).is_enabled(), f"{name} to be switched on")
        self.one(role, name, within).click()

    def hover(self, node):
        ActionChains(self.driver).move_to_element(node).perform()

    def type(self, name, *keys, within=None):
        self.one("textbox", name, within).send_keys(*keys)

    def keys(self, *keys):
        """To what has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def shift_enter(self):
        ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()

    def focused(self):
        node = self.driver.switch_to.active_element
        return node.aria_role, node.accessible_name

    # ---- judging ----

    def console_errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requested(self):
        """Addresses that were asked for since the last call."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                found.append(message["params"].get("request", message["params"])["url"])
        return found

    def low_contrast(self):
        """How many texts were judged, and those whose contrast is too low."""
        return self.script(CONTRAST)

    def axe(self):
        """What the engine axe finds serious or worse; None: the package axe_core_python is not installed."""
        found = importlib.util.find_spec("axe_core_python")
        if found is None:
            return None
        self.script((pathlib.Path(found.submodule_search_locations[0]) / "axe.min.js").read_text())
        told = self.driver.execute_async_script("axe.run().then(arguments[0])")
        return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in told["violations"]
                if v["impact"] in ("serious", "critical")]

    def sideways(self):
        return self.script(SIDEWAYS)
