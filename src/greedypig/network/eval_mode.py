"""The caller's own modules in eval mode for the time of one call, and put back after it.

Modes, flags and buffers are put back; parameters and plain attributes that a forward writes on are
not.
"""

from __future__ import annotations

from torch import Tensor, equal, inference_mode, nn, no_grad


def all_modules(root: nn.Module) -> list[nn.Module]:
    """Every module once, in an order that a copy shares; `modules()` of torch is far slower."""
    modules, seen, todo = [], {id(root)}, [root]
    while todo:
        module = todo.pop()
        modules.append(module)
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return modules


class Snapshot:
    """What a module was like before it was frozen."""

    def __init__(self, module: nn.Module) -> None:
        # A module that torch.jit.freeze made has no mode any more.
        self.module, self.mode = module, getattr(module, "training", None)
        self.flags = [
            p for p in module._parameters.values()
            if p is not None and p.is_leaf and p.requires_grad
        ]  # fmt: skip
        self.buffers = {name: None if b is None else (b, b.detach().clone())
                        for name, b in module._buffers.items()}  # fmt: skip

    def freeze(self) -> None:
        """Eval mode, and no gradients for parameters."""
        if self.mode is not None:
            self.module.training = False
        for parameter in self.flags:
            parameter.requires_grad_(False)

    def restore(self) -> None:
        """Everything as it was; may be done again."""
        if self.mode is not None:
            self.module.training = self.mode
        for parameter in self.flags:
            parameter.requires_grad_(True)
        for name, saved in self.buffers.items():
            self.module._buffers[name] = None if saved is None else saved[0]
            if saved is not None:
                _put_back(*saved)


def _put_back(buffer: Tensor, before: Tensor) -> None:
    """The numbers that the buffer held before.

    They are compared, as writing by `.data`, by NumPy or by a fused kernel leaves no version.
    """
    try:
        if equal(buffer, before):
            return
    except NotImplementedError:  # Of sparse tensors and some dtypes: written without a look.
        pass
    # Numbers that only inference mode may write on, were written on there.
    with no_grad(), inference_mode(buffer.is_inference()):
        if buffer.shape != before.shape:
            buffer.resize_(before.shape)
        buffer.data.copy_(before)  # By .data too, so that a graph of the caller's stays valid.
