"""A package, so that what its tests share is closed with the last of them: see `chromium` in conftest.py."""
