"""Templates that were compiled before are loaded, unless their text or anything else has changed."""

from pathlib import Path

import jinja2
import pytest

from discreet.report.pages._compiled_templates import CompiledTemplates


def _environment(folder: Path, options: str = "") -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        bytecode_cache=CompiledTemplates(folder, options),
    )


def _kept(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("*"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a template that was compiled."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.pycache_prefix", None)
    (tmp_path / "page.html").write_text("one {{ x }}")
    assert _environment(tmp_path).get_template("page.html").render(x=1) == "one 1"
    assert len(_kept(tmp_path)) == 1
    return tmp_path


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _environment(folder)
    monkeypatch.setattr(environment, "compile", lambda *_: pytest.fail("compiled again"))
    assert environment.get_template("page.html").render(x=2) == "one 2"


def test_a_changed_template_is_compiled_again(folder: Path) -> None:
    (folder / "page.html").write_text("two {{ x }}")
    assert _environment(folder).get_template("page.html").render(x=2) == "two 2"
    assert _environment(folder).get_template("page.html").render(x=3) == "two 3"


def test_other_options_have_code_of_their_own(folder: Path) -> None:
    _environment(folder, "others").get_template("page.html")
    assert len(_kept(folder)) == 2


@pytest.mark.parametrize("content", [b"", b"j2", b"no code at all"])
def test_a_broken_file_is_replaced(folder: Path, content: bytes) -> None:
    (path,) = _kept(folder)
    whole = path.read_bytes()
    path.write_bytes(content)
    assert _environment(folder).get_template("page.html").render(x=2) == "one 2"
    assert path.read_bytes() == whole


@pytest.mark.parametrize("length", [10, 20, 60, 200])
def test_a_file_that_was_cut_off_is_replaced(folder: Path, length: int) -> None:
    (path,) = _kept(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    assert _environment(folder).get_template("page.html").render(x=2) == "one 2"
    assert path.read_bytes() == whole


def test_nothing_is_kept_where_python_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (folder / "page.html").write_text("two {{ x }}")
    before = [path.read_bytes() for path in _kept(folder)]
    assert _environment(folder).get_template("page.html").render(x=2) == "two 2"
    assert [path.read_bytes() for path in _kept(folder)] == before


def test_a_page_is_rendered_where_nothing_can_be_written(folder: Path) -> None:
    (folder / "other.html").write_text("other {{ x }}")
    for path in _kept(folder):
        path.unlink()
    (folder / "__pycache__").rmdir()
    (folder / "__pycache__").write_text("a file in place of the folder")
    assert _environment(folder).get_template("other.html").render(x=2) == "other 2"
    assert _kept(folder) == []
