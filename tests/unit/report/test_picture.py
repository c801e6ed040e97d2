import io

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.plot import encode_png, palette_picture

Image = pytest.importorskip("PIL.Image")


def decode(content):
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        assert image.mode == "RGB"
        return np.array(image)


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 7, 3), (5, 1, 3), (40, 61, 3)])
def test_png_decodes_to_the_same_bytes(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decode(encode_png(image)), image)


def test_smooth_pictures_become_small():
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 3))
    assert len(encode_png(np.ascontiguousarray(ramp))) < 2000


def test_original_redrawn_and_palette():
    height, width = 6, 4
    pixels = np.zeros((height * width, 3))
    pixels[: height * width // 2] = [250.0, 10.0, 10.0]
    centers = np.array([[200.4, 0.0, 0.0], [-5.0, 0.0, 150.0]])
    image = decode(palette_picture((height, width, 3), pixels, centers))
    assert image.shape == (3 * 12 + height + 48, 3 * 12 + 2 * width, 3)
    left, right = image[12:18, 12:16], image[12:18, 28:32]
    assert np.array_equal(left[0, 0], [250, 10, 10]) and np.array_equal(left[-1, -1], [0, 0, 0])
    assert np.array_equal(right[0, 0], [200, 0, 0]) and np.array_equal(right[-1, -1], [0, 0, 150])
    strip = image[24 + height : 24 + height + 48, 12:-12]
    assert np.array_equal(strip[0, 0], [0, 0, 150]) and np.array_equal(strip[-1, -1], [200, 0, 0])
    assert np.all(image[0] == 255) and np.all(image[-1] == 255)


def test_blocks_do_not_change_the_picture(monkeypatch):
    pixels = np.random.default_rng(1).uniform(0, 255, (300, 3))
    centers = pixels[:7]
    whole = palette_picture((15, 20, 3), pixels, centers)
    monkeypatch.setattr("fastlloyd.report.labelling._BLOCK_VALUES", 70)
    assert palette_picture((15, 20, 3), pixels, centers) == whole


@pytest.mark.parametrize(
    ("pixels", "centers"),
    [((5, 3), (2, 3)), ((4, 2), (2, 2)), ((4, 3), (2, 1)), ((4, 3), (0, 3)), ((4,), (2, 3))],
)
def test_shapes_that_do_not_fit(pixels, centers):
    with pytest.raises(ConfigError, match="palette picture"):
        palette_picture((2, 2, 3), np.zeros(pixels), np.zeros(centers))


def test_a_doubtful_palette_has_a_red_frame_and_is_else_the_same():
    pixels, centers = np.full((20 * 30, 3), 200.0), np.array([[10.0, 20.0, 30.0], [200.0, 200.0, 200.0]])
    plain = decode(palette_picture((20, 30, 3), pixels, centers))
    framed = decode(palette_picture((20, 30, 3), pixels, centers, doubtful=True))
    assert (framed[0, :] == (214, 39, 40)).all() and (framed[:, -1] == (214, 39, 40)).all()
    assert (framed[5:-5, 5:-5] == plain[5:-5, 5:-5]).all()
