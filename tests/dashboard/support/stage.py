"""One page of the dashboard in a browser, with words for what a person does there."""

from playwright.async_api import expect

WAIT_MS = 30_000
SIZES = {"desk": (1280, 900), "phone": (390, 800)}


expect.set_options(timeout=WAIT_MS)


async def open_stage(stack, browser, broker, path, *, colours="light", size="desk"):
    width, height = SIZES[size]
    # Without a locale it takes the one of the machine, which may be one that browsers do not know.
    profile = await browser.new_context(
        color_scheme=colours, locale="en-US", viewport={"width": width, "height": height}
    )
    stack.push_async_callback(profile.close)
    page = await profile.new_page()
    page.set_default_timeout(WAIT_MS)
    stage = Stage(page, broker)
    await stage.go(path)
    return stage


class Stage:
    """A tab. `complaints` is what the browser logged as errors."""

    def __init__(self, page, broker):
        self.page = page
        self.broker = broker
        self.complaints = []
        self.allowed = ()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message):
        is_allowed = any(part in message.text for part in self.allowed)
        if message.type == "error" and not is_allowed:
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")

    async def go(self, path):
        await self.page.goto(self.broker.url + path, wait_until="domcontentloaded")

    async def click(self, name, *, role="button", exact=True):
        await self.page.get_by_role(role, name=name, exact=exact).first.click()

    async def count_clicks(self):
        """Count what a person clicks from now on, until the page is loaded anew.

        Of the document, not of the window: where something moves under the pointer, the driver
        takes the click back there and repeats it.
        """
        await self.page.evaluate(
            "() => { window.clicks = 0;"
            " document.addEventListener('click', () => window.clicks++, true); }"
        )
        return lambda: self.page.evaluate("window.clicks")

    async def fill(self, label, text):
        await self.page.get_by_label(label, exact=True).first.fill(text)

    async def choose(self, label, option):
        await self.page.get_by_label(label, exact=True).first.select_option(option)

    async def sees(self, text, *, role=None):
        """Wait until the page shows a text, or an element of a role with it as its name."""
        page = self.page
        found = page.get_by_role(role, name=text) if role else page.get_by_text(text)
        await expect(found.filter(visible=True).first).to_be_visible()

    async def lacks(self, text, *, role):
        await expect(self.page.get_by_role(role, name=text)).to_have_count(0)

    async def row(self, caption, *texts):
        """Wait for a row of a table that holds all of these, and return it."""
        rows = self.page.get_by_role("table", name=caption).get_by_role("row")
        for text in texts:
            rows = rows.filter(has_text=text)
        await expect(rows.first).to_be_visible()
        return rows.first
