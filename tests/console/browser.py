"""A headless Chromium that looks at the console, and what can be judged of a page by script."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
DRIVER: Final = "chromedriver"
WAIT_S: Final = 60.0
WIDE: Final = (1280, 900)
NARROW: Final = (360, 740)
CONTRAST_MIN: Final = 4.5
ENTER: Final = "\ue007"
ESCAPE: Final = "\ue00c"
END: Final = "\ue010"
HOME: Final = "\ue011"
LEFT: Final = "\ue012"
RIGHT: Final = "\ue014"
DOWN: Final = "\ue015"
"""Keys as WebDriver names them."""
UNLABELLED: Final = Path(__file__).with_name("unlabelled.js").read_text()
FAINT: Final = Path(__file__).with_name("faint.js").read_text()

T = TypeVar("T")


def why_no_browser() -> str:
    """Return what is missing; empty if nothing is."""
    if not any(map(shutil.which, CHROMIUM)) or shutil.which(DRIVER) is None:
        return "needs Debian's packages chromium and chromium-driver"
    try:
        import selenium  # noqa: F401
    except ModuleNotFoundError:
        return "needs the package selenium"
    return ""


class Browser:
    """One window. Its methods wait until what they look for is there."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")  # or only the part behind # would change
        self.driver.get(url)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        """Return what `condition` gives once it is something."""
        deadline = time.monotonic() + WAIT_S
        while not (found := condition()):
            assert time.monotonic() < deadline, (
                f"waited {WAIT_S:g} s for {what}; the page says:\n{self.text()}"
            )
            time.sleep(0.1)
        return found

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def wait_text(self, *wanted: str) -> None:
        for one in wanted:
            self.wait(lambda one=one: one in self.text(), repr(one))  # type: ignore[misc]

    def click(self, selector: str) -> None:
        """Click what is there and can be clicked."""
        self.wait(
            lambda: self.run(
                "const e = document.querySelector(arguments[0]); if (!e || e.disabled) return false;"
                "e.click(); return true",
                selector,
            ),
            selector,
        )

    def fill(self, selector: str, text: str) -> None:
        self.wait(
            lambda: self.run(
                "const e = document.querySelector(arguments[0]); if (!e) return false;"
                "e.value = arguments[1]; return true",
                selector,
                text,
            ),
            selector,
        )

    def keys(self, *keys: str) -> None:
        """Press keys in what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self) -> str:
        return str(self.run("return document.activeElement.id"))

    def dark(self, *, is_dark: bool) -> None:
        scheme = "dark" if is_dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def picture(self, file: Path) -> None:
        self.driver.save_screenshot(str(file))

    def errors(self) -> list[str]:
        """Return the messages of the browser's console since the last call, with warnings and violations of the policy."""
        return [json.dumps(entry) for entry in self.driver.get_log("browser")]

    def unlabelled(self) -> list[str]:
        return list(self.run(UNLABELLED))

    def faint(self) -> list[str]:
        """Texts whose contrast with what is behind them is too small."""
        return list(self.run(FAINT, CONTRAST_MIN))

    def overflows(self) -> bool:
        """Return whether the page is wider than the window."""
        return bool(self.run("return document.documentElement.scrollWidth > window.innerWidth + 1"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that knows nothing of any other, and asks nobody but loopback."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(found for name in CHROMIUM if (found := shutil.which(name)))
    with tempfile.TemporaryDirectory() as profile:
        for option in (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
            *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", f"--user-data-dir={profile}"),
        ):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which(DRIVER)))
        try:
            browser = Browser(driver)
            browser.size(*WIDE)
            yield browser
        finally:
            driver.quit()
