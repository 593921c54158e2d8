"""What holds for all tests: it is said which programs that are not required are missing."""

from real_browser import find_browser


def pytest_report_header() -> str:
    """Say whether pages are opened in a real browser."""
    found = find_browser()
    return f"browser: {found or 'none is installed, so pages are parsed and not opened'}"
