"""A ResNet-50 training step, and a transformer that decodes; prints the medians in milliseconds as JSON.

Weights and inputs are random: what is measured is time. The transformer (24 layers, width 2048) appends to its cache by
torch.cat, so that it allocates and frees with every token.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch
import torchvision
from torch.nn import functional

BATCH, STEPS = 128, 30
LAYERS, WIDTH, HEADS, VOCABULARY = 24, 2048, 16, 32_000
SEQUENCES, PROMPT, TOKENS = 8, 128, 128


def median_of(steps: int, step: Callable[[], object], warm: int) -> float:
    """Return the median milliseconds of a step, the device's work included."""
    times = []
    for number in range(warm + steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if number >= warm:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def training() -> float:
    """Milliseconds of a training step of ResNet-50, bf16 autocast, batch 128."""
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (BATCH,), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return median_of(STEPS, step, warm=10)


class Layer(torch.nn.Module):
    """Attention over everything so far, and a feed-forward net."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.mix, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.past: torch.Tensor | None = None

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Return the state after this layer; its keys and values join the cache."""
        rows, length, _ = state.shape
        mixed = self.mix(self.first(state)).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        recent = mixed[1:]
        self.past = recent if self.past is None else torch.cat((self.past, recent), dim=3)
        seen = functional.scaled_dot_product_attention(mixed[0], self.past[0], self.past[1], is_causal=length > 1)
        state = state + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return state + self.down(functional.gelu(self.up(self.second(state))))


@torch.inference_mode()
def decoding() -> float:
    """Milliseconds for each token of eight sequences.

    The same sequences twice: at a length that it has not met yet the library plans its kernels, which takes it 25 ms.
    """
    with torch.device("cuda"):
        embed, head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)
        layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        tokens = torch.randint(VOCABULARY, (SEQUENCES, PROMPT))
    model = torch.nn.Sequential(embed, *layers, head).to(torch.bfloat16).eval()

    def decode() -> float:
        for layer in layers:
            layer.past = None
        latest = [model(tokens)[:, -1:].argmax(-1)]

        def step() -> None:
            latest[0] = model(latest[0])[:, -1:].argmax(-1)

        return median_of(TOKENS, step, warm=16)

    decode()
    return decode()


def main() -> None:
    """Measure both."""
    _free, total = torch.cuda.mem_get_info(0)
    torch.backends.cudnn.benchmark = True
    print(json.dumps({"total": total, "training": training(), "decoding": decoding()}))


if __name__ == "__main__":
    main()
