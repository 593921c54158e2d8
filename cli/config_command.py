"""``fanjoin config``: what is set and where it comes from, and whether it is right. Keys are never shown."""

import os
import sys
from pathlib import PurePath
from typing import Any

import click
from msgspec import to_builtins

from fanjoin.cli.printing import format_option, print_json, print_text
from fanjoin.cli.table import table
from fanjoin.ipc.config import Config, Flags, NotConfiguredError, Origin, load_config, origins_of, resolve
from fanjoin.ipc.config_schema import NAMED
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.paths import home_from
from fanjoin.ipc.text import clean


@click.group("config")
def config_command() -> None:
    """Show and check the configuration."""


@config_command.command("show")
@format_option
def show_command(form: str) -> None:
    """Print each setting, its value and where it comes from; keys are masked."""
    config = load_config(home_from(os.environ))
    settings = {**origins_of(config, os.environ, Flags()), **_named(config)}
    if form == "json":
        print_json({"file": clean(str(config.path)), "settings": to_builtins(settings), "warnings": config.warnings})
        return
    print_text(f"{clean(str(config.path))}\n")
    rows = [(name, _shown(origin.value), _place(origin)) for name, origin in settings.items()]
    print_text(table(("SETTING", "VALUE", "FROM"), rows))
    for warning in config.warnings:
        click.echo(f"warning: {warning}", err=True)


@config_command.command("check")
@format_option
def check_command(form: str) -> None:
    """Say what is wrong with the configuration and the environment; exit 2 if anything is."""
    warnings, problem, note = _checked()
    if form == "json":
        print_json({"ok": not problem, "problem": problem or None, "note": note or None, "warnings": warnings})
    else:
        verdict = "" if problem else "The configuration is right."
        lines = [*(f"warning: {warning}" for warning in warnings), problem, note, verdict]
        print_text("\n".join(filter(None, lines)))
    sys.exit(UserError.exit_code if problem else 0)


def _checked() -> tuple[list[str], str, str]:
    """Return the warnings, what is wrong, and what every turn would still have to be given by flags."""
    config = None
    try:
        config = load_config(home_from(os.environ))
        resolve(config, os.environ, Flags())
    except NotConfiguredError as error:
        return config.warnings if config else [], "", str(error)
    except UserError as error:
        return config.warnings if config else [], str(error), ""
    return config.warnings, "", ""


def _named(config: Config) -> dict[str, Origin]:
    """Return the fields of routes and prices, which only the file can give."""
    return {
        f"{section}.{name}.{field}": Origin(value=at.value, level="file", where=config.place(at.line))
        for section in NAMED
        for name, fields in config.named(section).items()
        for field, at in fields.items()
    }


def _shown(value: Any) -> str:
    """Return a value as it could be written into the file."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(value) or "(none)" if isinstance(value, tuple) else str(value)


def _place(origin: Origin) -> str:
    """Return the level and the place there; the file's path stands above the table."""
    if origin.level == "file":
        return PurePath(origin.where).name
    return origin.where if origin.level == "default" else f"{origin.level}: {origin.where}"
