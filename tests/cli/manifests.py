"""Edits a twin's manifest and seals it anew, as anybody can."""
import hashlib
import re

NAME = "twin.manifest.textproto"


def reseal(twin, edit):
    """`edit` maps the manifest's text, without its seal, to another."""
    path = twin / NAME
    body = path.read_text()
    body = body[:body.rindex("manifest_sha256: ")]
    changed = edit(body)
    assert changed != body, "the edit found nothing to change"
    path.write_text(f'{changed}manifest_sha256: "{hashlib.sha256(changed.encode()).hexdigest()}"\n')


def replace(old, new):
    return lambda body: body.replace(old, new)


def lines(field, body):
    return re.findall(rf'^{field}: "(.*)"$', body, re.M)
