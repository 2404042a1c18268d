"""A build backend (PEP 517) for one pure package, so that pip needs nothing but the standard library."""

import base64
import hashlib
import os
import zipfile

NAME, VERSION = "tidemark_client", "0.1.0"
HERE = os.path.dirname(os.path.abspath(__file__))
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"Metadata-Version: 2.1\nName: tidemark-client\nVersion: {VERSION}\nRequires-Python: >=3.9\nLicense: Apache-2.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tidemark\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {f"{INFO}/METADATA": METADATA.encode(), f"{INFO}/WHEEL": WHEEL.encode()}
    for name in sorted(os.listdir(os.path.join(HERE, NAME))):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(HERE, NAME, name), "rb") as file:
                files[f"{NAME}/{name}"] = file.read()
    return _write(os.path.join(wheel_directory, f"{NAME}-{VERSION}-py3-none-any.whl"), files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    files = {f"{INFO}/METADATA": METADATA.encode(), f"{INFO}/WHEEL": WHEEL.encode(), f"{NAME}.pth": f"{HERE}\n".encode()}
    return _write(os.path.join(wheel_directory, f"{NAME}-{VERSION}-py3-none-any.whl"), files)


def build_sdist(sdist_directory, config_settings=None):
    import tarfile

    base = f"{NAME}-{VERSION}"
    path = os.path.join(sdist_directory, f"{base}.tar.gz")
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in ("pyproject.toml", "build_wheel.py", NAME):
            archive.add(os.path.join(HERE, name), f"{base}/{name}", filter=lambda item: None if "__pycache__" in item.name else item)
    return os.path.basename(path)


def _write(path, files):
    record = f"{INFO}/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            archive.writestr(name, content)
        archive.writestr(record, "".join(lines) + f"{record},,\n")
    return os.path.basename(path)
