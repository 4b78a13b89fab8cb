"""What an installed outlast is, before any of its parts is used."""

from importlib import metadata, resources


def test_the_package_says_that_it_is_typed() -> None:
    assert resources.files("outlast").joinpath("py.typed").is_file()


def test_the_installed_version_has_a_command() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="outlast")
    assert script.value == "outlast.cli:main"
