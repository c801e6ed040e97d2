"""The same examples, keys and noise each time, as for fastlloyd's own tests."""

from tests.conftest import (  # noqa: F401
    pytest_collection,
    pytest_configure,
    pytest_fixture_setup,
    pytest_runtest_protocol,
    pytest_terminal_summary,
)
