def _lift(modules):
    """Parameters of all modules, then their buffers, each tensor once, under its first name."""
    names, tensors, seen = [], [], set()
    for kind in ("named_parameters", "named_buffers"):
        for i, module in enumerate(modules):
            for name, tensor in getattr(module, kind)(remove_duplicate=False):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    names.append(f"m{i}.{name}" if len(modules) > 1 else name)
                    tensors.append(tensor)
    return names, tensors


def _refuse(text):
    from torch.compiler import PrecompileError

    raise PrecompileError(text)


def _expect(what, expected, found):
    if expected != found:
        _refuse(f"{what}: expected {expected} (as captured), found {found}; pass what was captured, or compile again")


def _expect_tensor(what, tensor, shape, dtype, device):
    if not isinstance(tensor, torch.Tensor):
        _refuse(f"{what}: expected a tensor (as captured), found {type(tensor).__name__}")
    _expect(f"{what}, shape", tuple(shape), tuple(tensor.shape))
    _expect(f"{what}, dtype", dtype, str(tensor.dtype))
    _expect(f"{what}, device", torch.device(device).type, tensor.device.type)


def _expect_inputs(leaves):
    _expect("number of input leaves", len(USER_INPUT_SHAPES), len(leaves))
    for i, leaf in enumerate(leaves):
        what = f"input leaf {i} ({USER_INPUT_NAMES[i]})"
        if USER_INPUT_SHAPES[i] is not None:
            _expect_tensor(what, leaf, USER_INPUT_SHAPES[i], USER_INPUT_DTYPES[i], USER_INPUT_DEVICES[i])
        elif USER_INPUT_GENERATORS[i]:
            _expect(what, "Generator", type(leaf).__name__)
        elif USER_INPUT_VALUES[i] == ():
            pass  # not recorded: what the program holds of it cannot be compared
        elif USER_INPUT_VALUES[i] == ("nan",):
            _expect(what, "nan", str(leaf))
        else:
            _expect(what, (type(USER_INPUT_VALUES[i]).__name__, USER_INPUT_VALUES[i]), (type(leaf).__name__, leaf))


def _expect_modules(modules, names, tensors):
    _expect("parameters and buffers", PARAM_NAMES + BUFFER_NAMES, names)
    shapes, dtypes, devices = PARAM_SHAPES + BUFFER_SHAPES, PARAM_DTYPES + BUFFER_DTYPES, PARAM_DEVICES + BUFFER_DEVICES
    for name, tensor, shape, dtype, device in zip(names, tensors, shapes, dtypes, devices):
        _expect_tensor(f"'{name}'", tensor, shape, dtype, device)
    for i, module in enumerate(modules):
        for name, child in module.named_modules(remove_duplicate=False):
            name = ".".join(filter(None, [f"m{i}" if len(modules) > 1 else "", name]))
            if name in MODULE_TRAINING:
                _expect(f"training flag of module '{name}'", MODULE_TRAINING[name], child.training)


def _window(value):
    return (value.data_ptr(), value.shape, value.stride()) if isinstance(value, torch.Tensor) else id(value)


def _lay_out(tensor, strides):
    """The input itself, or a copy of it in the strides of the capture, by which its operators were taken apart."""
    if strides is None or not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
        return tensor
    if all(n == 1 or found == captured for n, found, captured in zip(tensor.shape, tensor.stride(), strides)):
        return tensor
    if 0 in [stride for n, stride in zip(tensor.shape, strides) if n > 1]:
        return tensor.contiguous()
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _compiled_call():
    """`call`, compiled by TorchInductor in this process the first time where the program was captured for it."""
    if BACKEND != "inductor":
        return call
    if "_compiled" not in globals():
        from torch._inductor import config

        with_eager_random_numbers = config.patch(fallback_random=True)
        globals()["_compiled"] = with_eager_random_numbers(torch.compile(call, fullgraph=True, dynamic=False))
    return globals()["_compiled"]


def _call_laid_out(inputs):
    """Runs the program on inputs laid out as at capture, and writes what it wrote into copies into the tensors they stand for."""
    laid_out = [_lay_out(x, strides) for x, strides in zip(inputs, PARAM_STRIDES + BUFFER_STRIDES + USER_INPUT_STRIDES)]
    copies = [(i, copy) for i, copy in enumerate(laid_out) if copy is not inputs[i]]
    outputs = _compiled_call()(laid_out + _mesh_coordinates())
    memory = {x.untyped_storage().data_ptr() for x in outputs if isinstance(x, torch.Tensor)}
    for i, copy in copies:
        if copy.numel() > 0 and copy.untyped_storage().data_ptr() in memory:
            _refuse(f"flat input {i}: a result is a view of it, so it must have the strides {copy.stride()} (as captured)")
        if not torch.equal(copy, inputs[i]):  # version counters do not tell: batch normalisation writes unseen
            inputs[i].copy_(copy)
    return outputs


def _mesh_coordinates():
    """This rank's place in each group of MESH_INPUTS, which torch.distributed knows by these names."""
    groups = globals().get("MESH_INPUTS", [])
    if not groups:
        return []
    from torch.distributed import distributed_c10d

    return [torch.tensor(distributed_c10d._resolve_process_group(group).rank()) for group in groups]


def _accumulate(tensor, gradient):
    if tensor.grad is None:
        tensor.grad = gradient
    else:
        tensor.grad.add_(gradient)


def forward(*args):
    """Runs the step on the arguments that the captured function took; gradients accumulate on `.grad`."""
    _expect("number of positional arguments", NUM_POSITIONAL_ARGS, len(args))
    for i in MODULE_POSITIONS:
        if not isinstance(args[i], torch.nn.Module):
            _refuse(f"argument {i}: expected a module (as captured), found {type(args[i]).__name__}")
    modules = [args[i] for i in MODULE_POSITIONS]
    leaves, spec = pytree.tree_flatten(tuple(a for i, a in enumerate(args) if i not in MODULE_POSITIONS))
    if IN_SPEC is not None and spec != pytree.treespec_loads(IN_SPEC):
        _refuse(f"structure of the inputs: expected {pytree.treespec_loads(IN_SPEC)} (as captured), found {spec}")
    _expect_inputs(leaves)
    names, tensors = _lift(modules)
    _expect_modules(modules, names, tensors)
    inputs = tensors + leaves
    for i, j in INPUT_ALIASES:
        _expect(f"flat inputs {i} and {j}, which were one tensor", _window(inputs[i]), _window(inputs[j]))
    with torch.no_grad(), torch._C._DisableAutocast():
        outputs = _call_laid_out(inputs)
        targets = [tensors[i] for i in GRAD_PARAM_INDICES] + [leaves[i] for i in GRAD_INPUT_INDICES]
        n_results = len(outputs) - len(targets)
        for tensor, gradient in zip(targets, outputs[n_results:]):
            _accumulate(tensor, gradient)
    return pytree.tree_unflatten(outputs[:n_results], pytree.treespec_loads(OUT_SPEC))
