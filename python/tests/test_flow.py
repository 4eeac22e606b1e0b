"""Ids follow the data: views, writes in place, aliases, checkpoints."""

import torch
from conftest import by_name, convolutions, layers_of, run_step, transformer

import goldline
from goldline.reading import RunReader


def recorded(path, program, **settings):
    with goldline.record(path, **settings):
        program()
    run = RunReader(str(path))
    return run, {one["name"] + ("#%d" % one["call"] if one.get("call") else ""): one for one in run.layers}


def test_inputs_of_an_operator_in_place_are_as_they_were_before(tmp_path):
    x = torch.tensor([-1.0, 2.0])

    def program():
        y = x * 3
        y.relu_()
        y.add_(1)

    run, layers = recorded(tmp_path / "run", program, inputs={"x": x})
    relu, add = layers["relu"], layers["add"]
    assert run.tensor(relu["inputs"][0]).tolist() == [-3.0, 6.0]
    assert run.tensor(relu["outputs"][0]).tolist() == [0.0, 6.0]
    assert relu["inputs"] == layers["mul"]["outputs"] and add["inputs"] == relu["outputs"]
    assert run.tensor(add["outputs"][0]).tolist() == [1.0, 7.0]


def test_a_write_through_a_view_reaches_the_whole(tmp_path):
    x = torch.zeros(4, 2)

    def program():
        y = x + 0
        y[1:3].fill_(5.0)
        y.sum()

    run, layers = recorded(tmp_path / "run", program, inputs={"x": x})
    total = layers["sum"]
    assert run.tensor(total["inputs"][0]).tolist() == [[0, 0], [5, 5], [5, 5], [0, 0]]
    update = next(one for one in run.layers if one["op"] == "buffer")
    assert update["outputs"] == total["inputs"]
    assert set(update["inputs"]) == set(layers["add"]["outputs"] + layers["fill"]["outputs"])


def test_a_view_made_before_a_write_sees_it(tmp_path):
    x = torch.arange(4.0)

    def program():
        y = x + 0
        view = y[:2]
        y.mul_(10)
        view.neg()

    run, layers = recorded(tmp_path / "run", program, inputs={"x": x})
    assert run.tensor(layers["neg"]["inputs"][0]).tolist() == [0.0, 10.0]


def test_views_of_every_kind_are_read_back(tmp_path):
    x = torch.arange(4096.0).reshape(32, 128)

    def program():
        y = x * 2
        for view in (y.t(), y[3:9], y[:, ::2], y.unsqueeze(1).expand(32, 3, 128), y.view(8, 512), y[5]):
            view.contiguous().sum()
            view.neg()

    run, _ = recorded(tmp_path / "run", program, inputs={"x": x})
    y = x * 2
    expected = (y.t(), y[3:9], y[:, ::2], y.unsqueeze(1).expand(32, 3, 128), y.view(8, 512), y[5])
    negated = [one for one in run.layers if one["op"] == "neg"]
    assert len(negated) == len(expected)
    for layer, view in zip(negated, expected):
        assert torch.equal(run.tensor(layer["inputs"][0]), view)
        assert torch.equal(run.tensor(layer["outputs"][0]), -view)


def test_memory_that_is_used_again_is_another_tensor(tmp_path):
    x = torch.ones(1000)

    def program():
        for _ in range(20):
            (x + 1).sum()  # freed at once: the next result lies in the same place

    run, _ = recorded(tmp_path / "run", program, inputs={"x": x})
    sums = [one for one in run.layers if one["op"] == "sum"]
    assert len({one["inputs"][0] for one in sums}) == 20


def test_a_write_that_was_not_seen_makes_a_new_source(tmp_path):
    x = torch.ones(3)
    with goldline.record(tmp_path / "run", inputs={"x": x}):
        x.neg()
        with torch.utils._python_dispatch._disable_current_modes():
            x.fill_(7)
        x.neg()
    run = RunReader(str(tmp_path / "run"))
    sources = [one for one in run.layers if one["op"] == "input"]
    assert [run.tensor(one["outputs"][0])[0].item() for one in sources] == [1.0, 7.0]


def test_detach_is_no_layer_and_data_shares_the_id(tmp_path):
    x = torch.ones(3, requires_grad=True)

    def program():
        y = x.exp()
        y.detach().neg()
        y.data.abs()
        y.data.add_(1)
        y.sqrt()

    run, layers = recorded(tmp_path / "run", program, inputs={"x": x})
    assert "detach" not in layers
    assert layers["neg"]["inputs"] == layers["abs"]["inputs"] == layers["exp"]["outputs"]
    assert layers["sqrt"]["inputs"] == layers["add"]["outputs"]


def test_empty_scalar_strided_and_narrow_tensors(tmp_path):
    tensors = {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(12.0).reshape(3, 4).t(),
        "half": torch.ones(3, dtype=torch.float16),
        "brain": torch.ones(3, dtype=torch.bfloat16),
        "eight": torch.ones(3).to(torch.float8_e4m3fn),
        "flag": torch.tensor([True, False]),
        "number": torch.tensor([1, 2**40]),
        "complex": torch.tensor([1 + 2j], dtype=torch.complex64),
    }

    def program():
        for tensor in tensors.values():
            tensor.clone()

    run, _ = recorded(tmp_path / "run", program, inputs=tensors)
    made = [one for one in run.layers if one["op"] == "clone"]
    for layer, tensor in zip(made, tensors.values()):
        for tensor_id in layer["inputs"] + layer["outputs"]:
            found = run.tensor(tensor_id)
            assert found.dtype == tensor.dtype and found.shape == tensor.shape
            assert found.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_every_input_was_made_before(tmp_path):
    for number, make in enumerate((transformer, convolutions)):
        model, inputs, target = make()
        with goldline.record(tmp_path / str(number), model=model, inputs=dict(inputs, target=target)):
            run_step(model, inputs, target, torch.optim.Adam(model.parameters()))
        known = set()
        for layer in layers_of(tmp_path / str(number)):
            assert set(layer["inputs"]) <= known, layer
            known |= set(layer["outputs"])
        # What the model is given is all that comes from nowhere, but for constants in its code.
        names = {one["name"] for one in layers_of(tmp_path / str(number)) if one["op"] in ("param", "input")}
        expected = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
        assert names <= expected | set(inputs) | {"target"}


def test_a_checkpoint_leaves_the_layers_of_a_plain_run(tmp_path):
    found = []
    for checkpoint in (False, True):
        model, inputs, target = transformer(checkpoint=checkpoint)
        with goldline.record(tmp_path / str(checkpoint), model=model, inputs=dict(inputs, target=target)):
            run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1))
        found.append(
            [(one["name"], one["pass"], one["call"], one["inputs"]) for one in layers_of(tmp_path / str(checkpoint))]
        )
    assert sorted(found[0]) == sorted(found[1])


def test_batch_norm_updates_its_statistics(tmp_path):
    model, inputs, _ = convolutions()
    before = model.norm.running_mean.clone()
    with goldline.record(tmp_path / "run", model=model):
        model(**inputs)
    run = RunReader(str(tmp_path / "run"))
    update = by_name(tmp_path / "run", "norm.running_mean.buffer")
    assert torch.equal(run.tensor(update["inputs"][0]), before)
    assert torch.equal(run.tensor(update["outputs"][0]), model.norm.running_mean)
