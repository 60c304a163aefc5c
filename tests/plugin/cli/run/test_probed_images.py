"""Images are looked into once."""

from types import SimpleNamespace

from convgpu.cli.connect.engine_documents import Image
from convgpu.cli.run.probed_images import is_occupied


def test_an_image_is_looked_into_once_and_a_damaged_file_costs_only_time(tmp_path):
    file = tmp_path / "cache/images.json"
    asked = []
    engine = SimpleNamespace(image_has=lambda name, _: asked.append(name) or name == "full")
    for name in ("full", "full", "empty", "empty"):
        assert is_occupied(engine, name, Image((), (), f"sha256:{name}"), file) == (name == "full")
    assert asked == ["full", "empty"]
    for text in ("{", "[1]", '{"sha256:full": 7}'):
        file.write_text(text)
        assert is_occupied(engine, "full", Image((), (), "sha256:full"), file)
    assert asked[2:] == ["full"] * 3
    assert is_occupied(engine, "full", Image((), (), "sha256:full"), file)
    assert len(asked) == 5
    assert [each.name for each in file.parent.iterdir()] == ["images.json"]


def test_without_an_id_or_a_home_nothing_is_kept(tmp_path):
    asked = []
    engine = SimpleNamespace(image_has=lambda name, _: asked.append(name) is not None)
    (tmp_path / "file").touch()
    for file in (tmp_path / "images.json", tmp_path / "file/images.json"):
        for image in (Image((), ()), Image((), (), "sha256:a")):
            assert not is_occupied(engine, "i", image, file)
    assert not is_occupied(engine, "i", Image((), (), "sha256:a"), tmp_path / "file/images.json")
    assert asked == ["i"] * 5
