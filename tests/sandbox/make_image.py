"""Make an archive of an image: make_image.py WHAT PATH. WHAT is a name of the table below; most are broken in one way."""
import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar(*entries):
    """Entries are (name, content), (name, None) for a folder, (name, link, kind), or a TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            info, data = tarfile.TarInfo(entry[0]), b""
            info.mode, info.mtime = 0o755, 1700000000
            if len(entry) == 3:
                info.type, info.linkname = entry[2], entry[1]
            elif entry[1] is None:
                info.type = tarfile.DIRTYPE
            else:
                data = entry[1].encode()
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def device(name):
    info = tarfile.TarInfo(name)
    info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3
    return info


def zstd(data):
    return subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout


BASE = tar((".", None), ("etc", None), ("etc/base", "base"), ("gone", "x"), ("dir", None), ("dir/old", "old"), ("swap", None), ("swap/x", "x"))
TOP = tar(("etc/top", "top"), (".wh.gone", ""), ("dir/.wh..wh..opq", ""), ("dir/new", "new"), (".wh.swap", ""), ("swap", "now a file"),
          (".wh..wh.plnk", ""), device("null"))
EMPTY = tar()


def config(*layers, machine=ARCHITECTURE, diffs=None):
    return json.dumps({"architecture": machine, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs or [sha(layer) for layer in layers]},
                       "config": {"Env": ["PATH=/usr/bin:/bin", "GREETING=hello world", "BROKEN=a\nb"], "User": "1000", "WorkingDir": "/srv"}}).encode()


def oci(layers, packed=None, made=None, change=lambda files: None, references=("latest",)):
    packed = packed or [gzip.compress(layer) for layer in layers]
    made = made or config(*layers)
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    blob = lambda data: files.setdefault("blobs/sha256/" + sha(data)[7:], data)
    manifest = json.dumps({"schemaVersion": 2, "config": {"digest": sha(blob(made)), "size": len(made)},
                           "layers": [{"digest": sha(blob(layer)), "size": len(layer)} for layer in packed]}).encode()
    blob(manifest)
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [
        {"digest": sha(manifest), "size": len(manifest), "annotations": {"org.opencontainers.image.ref.name": name},
         "platform": {"os": "linux", "architecture": ARCHITECTURE}} for name in references] + [
        {"digest": sha(b"nothing"), "size": 7, "platform": {"os": "unknown", "architecture": "unknown"}}]}).encode()
    change(files)
    return files


def saved(layers, change=lambda files: None):
    made = config(*layers)
    files = {f"{i}/layer.tar": layer for i, layer in enumerate(layers)}
    files[sha(made)[7:] + ".json"] = made
    files["manifest.json"] = json.dumps([{"Config": sha(made)[7:] + ".json", "RepoTags": ["base:1"],
                                          "Layers": [f"{i}/layer.tar" for i in range(len(layers))]}]).encode()
    change(files)
    return files


def raw(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def largest(files, prefix="blobs/"):
    return max((name for name in files if name.startswith(prefix)), key=lambda name: len(files[name]))


def swap(prefix, old, new):
    """Change what is in the largest file whose name starts so."""
    def change(files):
        name = largest(files, prefix)
        assert old in files[name]
        files[name] = files[name].replace(old, new)
    return change


def edit(name, **members):
    def change(files):
        document = json.loads(files[name])
        (document[0] if isinstance(document, list) else document).update(members)
        files[name] = json.dumps(document).encode()
    return change


def put(name, data):
    return lambda files: files.update({name: data})


def drop(suffix):
    return lambda files: files.pop(next(n for n in files if n.endswith(suffix)))


# Each adds a file, changes one, and hides the one before it.
MANY = [tar(("etc", None), ("l", None), (f"l/{i}", str(i)), ("l/top", str(i)), (f"l/.wh.{i - 1}", ""), ("hard/a", "same"), ("hard/b", "hard/a", tarfile.LNKTYPE))
        for i in range(60)]

WHAT = {
    # Fine ones: the same image in every form.
    "oci": lambda: raw(oci([BASE, TOP])),
    "oci-gzip": lambda: gzip.compress(raw(oci([BASE, EMPTY, TOP]))),
    "oci-zstd": lambda: raw(oci([BASE, TOP], packed=[zstd(BASE), zstd(TOP)])),
    "oci-plain": lambda: raw(oci([BASE, TOP], packed=[BASE, TOP])),
    "oci-two": lambda: raw(oci([BASE, TOP], references=("one", "two"))),
    "saved": lambda: raw(saved([BASE, TOP])),
    "rootfs": lambda: gzip.compress(BASE),
    "other": lambda: raw(oci([BASE, tar(("etc/other", "other"))])),
    # Broken ones.
    "changed-layer": lambda: raw(oci([BASE, TOP], packed=[BASE, TOP], change=swap("blobs/", b"\0base\0", b"\0bose\0"))),
    "wrong-diff": lambda: raw(oci([BASE], made=config(BASE, diffs=[sha(TOP)]))),
    "missing-blob": lambda: raw(oci([BASE], change=lambda files: files.pop(largest(files)))),
    "few-diffs": lambda: raw(oci([BASE, TOP], made=config(BASE))),
    "other-machine": lambda: raw(oci([BASE], made=config(BASE, machine="pdp11"))),
    "no-index": lambda: raw(oci([BASE], change=drop("index.json"))),
    "index-is-text": lambda: raw(oci([BASE], change=put("index.json", b'"text"'))),
    "index-is-broken": lambda: raw(oci([BASE], change=put("index.json", b'{"manifests":['))),
    "index-is-empty": lambda: raw(oci([BASE], change=edit("index.json", manifests=[]))),
    "index-of-a-path": lambda: raw(oci([BASE], change=edit("index.json", manifests=[{"digest": "sha256:../../../../../../etc/passwd"}]))),
    "saved-changed-config": lambda: raw(saved([BASE], change=swap(sha(config(BASE))[7:], b"1000", b"1001"))),
    "saved-path-out": lambda: raw(saved([BASE], change=edit("manifest.json", Layers=["../../../../../../etc/passwd"]))),
    "saved-absolute-path": lambda: raw(saved([BASE], change=edit("manifest.json", Layers=["/etc/passwd"]))),
    "same-layer-twice": lambda: raw(oci([BASE, TOP, BASE])),
    "many-layers": lambda: raw(oci(MANY)),
    "layer-up": lambda: raw(oci([tar(("etc", None), ("../../evil", "x"))])),
    "layer-through-link": lambda: raw(oci([tar(("etc", None), ("l", "/tmp", tarfile.SYMTYPE), ("l/evil", "x"))])),
    "layer-hides-up": lambda: raw(oci([tar(("etc", None), ("a/.wh...", ""))])),
    "layer-link-out": lambda: raw(oci([tar(("etc", None), ("a", "../../manifest.json", tarfile.LNKTYPE))])),
    "layer-is-text": lambda: raw(oci([b"this is no archive"], packed=[b"this is no archive"])),
    "layer-cut": lambda: raw(oci([BASE[:700]], packed=[BASE[:700]])),
    "layer-bomb": lambda: raw(oci([tar(("etc", None))], packed=[zstd(b"\0" * (200 << 20))])),
    "archive-cut": lambda: gzip.compress(raw(oci([BASE])))[:-20],
    "empty": lambda: b"",
    "nothing": lambda: EMPTY,
    "text": lambda: b"no archive at all",
}

if __name__ == "__main__":
    if sys.argv[1] == "names":
        print("\n".join(WHAT))
        sys.exit()
    if sys.argv[1] == "folder":
        for path, content in oci([BASE, TOP]).items():
            os.makedirs(os.path.dirname(os.path.join(sys.argv[2], path)), exist_ok=True)
            with open(os.path.join(sys.argv[2], path), "wb") as out:
                out.write(content)
        sys.exit()
    with open(sys.argv[2], "wb") as out:
        out.write(WHAT[sys.argv[1]]())
