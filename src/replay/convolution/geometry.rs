//! Which input position each tap of a kernel reads, dimension by dimension.

use crate::replay::{Call, Unmodelled};

/// A convolution's arguments, one entry a spatial dimension.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub(super) stride: Vec<usize>,
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
    pub(super) dilation: Vec<usize>,
    pub(super) output_padding: Vec<usize>,
    pub(super) groups: usize,
    pub(super) transposed: bool,
}

/// One spatial dimension as a gather: which input position a tap reads for an output position. Computed
/// on demand, since a table of it may outgrow every tensor.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) taps: usize,
    stride: usize,
    before: usize,
    dilation: usize,
    transposed: bool,
}

impl Geometry {
    /// Reads the attributes of a convolution with a kernel of the extents `kernel`.
    ///
    /// # Errors
    /// Attributes were not recorded, are of another length, or name a padding that is not modelled.
    pub(super) fn of(call: &Call, kernel: &[usize], transposed: bool) -> Result<Self, Unmodelled> {
        let dimensions = kernel.len();
        let list = |name: &str, default: usize, least: usize| -> Result<Vec<usize>, Unmodelled> {
            let values = call.integers(name)?.unwrap_or_else(|| vec![default as i64]);
            let values = if values.len() == 1 { values.repeat(dimensions) } else { values };
            let sound = |value: &i64| usize::try_from(*value).ok().filter(|&v| v >= least && v <= 1 << 32);
            let values: Option<Vec<_>> = values.iter().map(sound).collect();
            values.filter(|values| values.len() == dimensions).ok_or_else(|| {
                Unmodelled(format!("attribute {name} of {} does not fit {dimensions} dimensions", call.function()))
            })
        };
        if let Some(mode) = call.text("padding_mode")?.filter(|&mode| mode != "zeros") {
            return Err(Unmodelled(format!("padding mode {mode} of {} is not modelled", call.function())));
        }
        let (stride, dilation) = (list("stride", 1, 1)?, list("dilation", 1, 1)?);
        let named_padding = call.attr("padding")?.and_then(|padding| padding.as_str());
        let (before, after) = match named_padding {
            None => {
                let padding = list("padding", 0, 0)?;
                (padding.clone(), padding)
            }
            Some("valid") => (vec![0; dimensions], vec![0; dimensions]),
            Some("same") if !transposed && stride.iter().all(|&stride| stride == 1) => {
                // What is odd goes behind, as torch has it.
                let total: Vec<_> = kernel.iter().zip(&dilation).map(|(&k, &d)| d * k.saturating_sub(1)).collect();
                (total.iter().map(|t| t / 2).collect(), total.iter().map(|t| t - t / 2).collect())
            }
            Some(text) => return Err(Unmodelled(format!("padding {text} of {} is not modelled", call.function()))),
        };
        let groups = usize::try_from(call.integer("groups", Some(1))?).unwrap_or(0);
        if groups == 0 {
            return Err(Unmodelled(format!("{} with no groups", call.function())));
        }
        let output_padding = if transposed { list("output_padding", 0, 0)? } else { vec![0; dimensions] };
        Ok(Self { stride, before, after, dilation, output_padding, groups, transposed })
    }

    /// How many output positions the dimension `at` has; `None` where the kernel does not fit.
    pub(super) fn outputs(&self, at: usize, inputs: usize, taps: usize) -> Option<usize> {
        let reach = self.dilation[at].checked_mul(taps.checked_sub(1)?)?;
        let padding = self.before[at].checked_add(self.after[at])?;
        if self.transposed {
            let span = inputs.checked_sub(1)?.checked_mul(self.stride[at])?.checked_add(reach)?;
            return span.checked_add(self.output_padding[at])?.checked_add(1)?.checked_sub(padding);
        }
        Some(inputs.checked_add(padding)?.checked_sub(reach.checked_add(1)?)? / self.stride[at] + 1)
    }

    /// The dimension `at` as a gather from `inputs` to `outputs` positions.
    pub(super) fn axis(&self, at: usize, inputs: usize, outputs: usize, taps: usize) -> Axis {
        let (stride, before, dilation) = (self.stride[at], self.before[at], self.dilation[at]);
        Axis { inputs, outputs, taps, stride, before, dilation, transposed: self.transposed }
    }

    /// True where a tap may read what is no input.
    pub(super) fn pads(&self) -> bool {
        self.transposed || self.before.iter().chain(&self.after).any(|&padding| padding > 0)
    }
}

impl Axis {
    /// The input position that `tap` reads for `output`; `None` for padding.
    pub(super) fn read(&self, tap: usize, output: usize) -> Option<usize> {
        let read = if self.transposed {
            // output = input * stride - before + tap * dilation
            let spread = (output + self.before).checked_sub(tap * self.dilation);
            spread.filter(|at| at % self.stride == 0).map(|at| at / self.stride)
        } else {
            (output * self.stride + tap * self.dilation).checked_sub(self.before)
        };
        read.filter(|&at| at < self.inputs)
    }
}

/// For a block of flattened output positions from `start` on: the flattened input position that each
/// tap reads, at `tap * block + position`; both counted row-major over the axes.
pub(super) fn reads(axes: &[Axis], start: usize, block: usize) -> Vec<Option<usize>> {
    let taps: usize = axes.iter().map(|axis| axis.taps).product();
    let mut table = Vec::with_capacity(taps * block);
    for tap in 0..taps {
        for position in start..start + block {
            let (mut tap, mut position) = (tap, position);
            let (mut flat, mut step) = (Some(0), 1);
            for axis in axes.iter().rev() {
                let read = axis.read(tap % axis.taps, position % axis.outputs);
                flat = flat.zip(read).map(|(flat, read)| flat + read * step);
                step *= axis.inputs;
                tap /= axis.taps;
                position /= axis.outputs;
            }
            table.push(flat);
        }
    }
    table
}
