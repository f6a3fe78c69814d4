"""Every Arrow type, from each language to each."""

import pytest

import peer

VARIANTS = ["nulls", "valid", "sliced", "empty", "empty_part"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", peer.CASES)
def test_every_type(owner, opener, case, variant):
    ticket = owner.share(case, variant)
    opener.open(ticket)
    assert opener.ask("compare", case, variant) == "equal"
    assert owner.ask("openers") == "1"
    assert opener.ask("release") == "released"
    assert owner.ask("wait", 60) == "released"


def test_metadata_of_the_batch(opener):
    """It is bytes, as it is in Go, and not a text."""
    import machines

    with machines.process("go") as owner:
        opener.open(owner.share())
        said = opener.ask("metadata")
        assert said == {"go": '["of": "batch", "bytes": "\\xff"]', "python": "{b'of': b'batch', b'bytes': b'\\xff'}"}[opener.language]
        opener.ask("release")
