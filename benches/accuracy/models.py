"""Small models with random weights: other architectures than the sets that the rules were built on.

`build(name, seed, **how)` gives a module and its inputs. `how` holds what a correct port may do
otherwise: `fused` attention, `upcast` norms, `dropout_op` (dropout in eval mode as an operator).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Rms(nn.Module):
    def __init__(self, width, upcast):
        super().__init__()
        self.weight, self.upcast = nn.Parameter(1 + 0.1 * torch.randn(width)), upcast

    def forward(self, x):
        wide = x.to(torch.float64 if x.dtype == torch.float32 else torch.float32) if self.upcast else x
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (scaled.to(x.dtype) if self.upcast else scaled)


def attend(q, k, v, fused, causal):
    if fused:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, how):
        super().__init__()
        self.heads, self.groups, self.size, self.how = heads, groups, width // heads, how
        self.norm1, self.norm2 = Rms(width, how["upcast"]), Rms(width, how["upcast"])
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)

    def forward(self, x, cos, sin):
        n, t, _ = x.shape
        h = self.norm1(x)
        q = self.rotate(self.q(h).view(n, t, self.heads, self.size).transpose(1, 2), cos, sin)
        k = self.rotate(self.k(h).view(n, t, self.groups, self.size).transpose(1, 2), cos, sin)
        v = self.v(h).view(n, t, self.groups, self.size).transpose(1, 2)
        k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        x = x + self.o(attend(q, k, v, self.how["fused"], True).transpose(1, 2).reshape(n, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, how, width=32, layers=2, vocab=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, 4, 2, how) for _ in range(layers))
        self.norm, self.head = Rms(width, how["upcast"]), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        t = ids.shape[1]
        angle = torch.arange(t, dtype=torch.float32)[:, None] * (10000 ** -(torch.arange(4, dtype=torch.float32) / 4))
        angle = torch.cat([angle, angle], -1)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype))
        return self.head(self.norm(x))


class VitBlock(nn.Module):
    def __init__(self, width, heads, how):
        super().__init__()
        self.heads, self.how = heads, how
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = self.out(attend(q, k, v, self.how["fused"], False).transpose(1, 2).reshape(n, t, d))
        if self.how["dropout_op"]:
            y = torch.ops.aten.native_dropout(y, 0.1, False)[0]
        x = x + y
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, how, width=24, layers=2):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(0.1 * torch.randn(1, 17, width))
        self.blocks = nn.ModuleList(VitBlock(width, 3, how) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.to(x.dtype).expand(x.shape[0], -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class UNet(nn.Module):
    def __init__(self, how, width=8):
        super().__init__()
        self.enter, self.bn = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.bn.running_mean.normal_(0, 0.2)
        self.bn.running_var.uniform_(0.5, 2)
        self.down, self.gn1 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.GroupNorm(4, 2 * width)
        self.mid, self.gn2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2), nn.GroupNorm(4, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.fuse, self.gn3 = nn.Conv2d(4 * width, width, 3, padding=1), nn.GroupNorm(2, width)
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, image):
        a = F.silu(self.bn(self.enter(image)))
        b = F.silu(self.gn1(self.down(a)))
        b = b + F.silu(self.gn2(self.mid(b)))
        smooth = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        pooled = F.avg_pool2d(F.pad(a, (1, 1, 1, 1)), 3, 1)
        joined = torch.cat([self.up(b), pooled, smooth], 1)
        return self.leave(F.silu(self.gn3(self.fuse(joined))))


class Mixer(nn.Module):
    def __init__(self, how, tokens=16, width=24, layers=3):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.token = nn.ModuleList(nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens)) for _ in range(layers))
        self.channel = nn.ModuleList(nn.Sequential(nn.Linear(width, 48), nn.Tanh(), nn.Linear(48, width)) for _ in range(layers))
        self.head = nn.Linear(width, 12)

    def forward(self, x):
        for at, (token, channel) in enumerate(zip(self.token, self.channel)):
            x = x + token(self.norms[2 * at](x).transpose(1, 2)).transpose(1, 2)
            x = x + channel(self.norms[2 * at + 1](x))
        return F.log_softmax(self.head(x.mean(1)), -1)


class Pooled(nn.Module):
    """A sequence model without recurrence: decayed cumulative sums, softmax pooling, a near tie at the end."""

    def __init__(self, how, width=24, vocab=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix, self.score = nn.Linear(width, width), nn.Linear(width, 1)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 20)
        with torch.no_grad():  # classes in pairs that tie but for the last bits
            self.head.weight[10:] = self.head.weight[:10] * (1 + 2e-7)
            self.head.bias[10:] = self.head.bias[:10]

    def forward(self, ids, keep):
        x = self.embed(ids)
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[None, :, None]
        x = torch.cumsum(x, 1) / count.sqrt() + torch.sigmoid(self.mix(x)) * x
        x = self.norm(x)
        weight = torch.softmax(self.score(x).squeeze(-1).masked_fill(~keep, float("-inf")), -1)
        pooled = (weight.unsqueeze(-1) * x).sum(1)
        late = torch.where(keep.unsqueeze(-1), x, torch.zeros_like(x)).amax(1)
        logits = self.head(torch.stack([pooled, late], 1))
        return logits, logits.argmax(-1), logits.topk(4, -1)[1]


MODELS = {"llama": Llama, "vit": Vit, "unet": UNet, "mixer": Mixer, "pooled": Pooled, "training": Vit}


def build(name, seed, **how):
    torch.manual_seed(1000 + seed)
    how = {"fused": True, "upcast": False, "dropout_op": False, **how}
    model = MODELS[name](how).eval()
    draw = torch.Generator().manual_seed(77 + seed)
    if name == "llama":
        return model, [torch.randint(0, 64, (2, 16), generator=draw)]
    if name == "pooled":
        keep = torch.arange(18)[None] < torch.tensor([[18 - seed % 4 - 1], [11]])
        return model, [torch.randint(0, 40, (2, 18), generator=draw), keep]
    if name == "mixer":
        return model, [torch.randn(2, 16, 24, generator=draw)]
    return model, [torch.randn(2, 3, 16, 16, generator=draw)]


def execute(name, model, inputs, recorder):
    """One run; `training` is forward, backward and a step of Adam."""
    if name != "training":
        with torch.no_grad():
            model(*inputs)
        return
    for at, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(at % 5 == 0)  # enough for every operator of the backward pass
    loss = F.cross_entropy(model(*inputs).float(), torch.tensor([3, 7]))
    recorder.phase = "backward"
    with torch.autocast("cpu", enabled=False):
        loss.backward()
    recorder.phase = "optimizer"
    parameters = [p for p in model.parameters() if p.grad is not None]
    with torch.autocast("cpu", enabled=False), torch.no_grad():
        torch.optim.Adam(parameters, lr=1e-3, foreach=False).step()
