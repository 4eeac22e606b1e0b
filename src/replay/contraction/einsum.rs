//! Einstein summation, any subscripts without repeated letters within one operand.

use ndarray::{Array3, ArrayD, ArrayViewD, Axis, IxDyn};

use super::matrix::{one, reshaped, view};
use super::product::{Sums, addressable, fits, multiply};
use crate::replay::{Call, References, Unmodelled};
use crate::tensor::element_count;

/// Elements that an intermediate product may have beyond four times inputs and outputs together.
const SPARE_ELEMENTS: usize = 1 << 16;

/// A tensor with one label an axis, and the sums of the squares of the terms it was made from.
struct Labelled {
    labels: Vec<Label>,
    value: ArrayD<f64>,
    /// `None` where nothing was summed yet: the square of each value.
    squares: Option<ArrayD<f64>>,
}

/// An axis: a letter of the equation, or an axis under the ellipsis counted from the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Letter(char),
    Ellipsis(usize),
}

/// `einsum(equation, operands)`; operands are multiplied from left to right.
pub(super) fn einsum(call: &Call) -> Result<References, Unmodelled> {
    let equation = call.text("equation")?.ok_or_else(|| Unmodelled("einsum without an equation".to_string()))?;
    let operands: Vec<_> = call.inputs.iter().map(view).collect();
    one(call, contract(call, equation, &operands)?)
}

/// The einsum of `operands` under `equation`, for output 0 of the call.
pub(super) fn contract(call: &Call, equation: &str, operands: &[ArrayViewD<f64>]) -> Result<Sums, Unmodelled> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<_> = inputs.split(',').collect();
    if terms.len() != operands.len() || operands.is_empty() {
        return Err(Unmodelled(format!("einsum of {} operands, but {} tensors", terms.len(), operands.len())));
    }
    let labels: Vec<_> =
        terms.iter().zip(operands).map(|(term, tensor)| labels_of(term, tensor.ndim())).collect::<Result<_, _>>()?;
    let extents = extents(&labels, operands)?;
    let result = match output {
        Some(output) => {
            let under = extents.iter().filter(|(label, _)| matches!(label, Label::Ellipsis(_))).count();
            let letters = output.replace("...", "").chars().count();
            labels_of(output, if output.contains("...") { letters + under } else { letters })?
        }
        None => implicit_output(&labels),
    };
    let extent = |label: &Label| extents.iter().find(|(known, _)| known == label).map(|&(_, extent)| extent);
    let shape: Option<Vec<_>> = result.iter().map(extent).collect();
    let shape = shape.ok_or_else(|| Unmodelled(format!("einsum {equation} outputs a letter that no operand has")))?;
    fits(call, 0, &shape)?;
    let summed: Vec<_> = extents.iter().filter(|(label, _)| !result.contains(label)).map(|&(_, e)| e).collect();
    let count = element_count(&summed).ok_or_else(|| Unmodelled("einsum sums too many terms".to_string()))?;
    let budget = operands.iter().map(ArrayViewD::len).sum::<usize>() + element_count(&shape).unwrap_or(usize::MAX / 8);
    let budget = budget.saturating_mul(4).saturating_add(SPARE_ELEMENTS);

    let mut product: Option<Labelled> = None;
    for (at, (labels_at, tensor)) in labels.iter().zip(operands).enumerate() {
        let later = &labels[at + 1..];
        let next = without_broadcast_axes(labels_at, tensor, &extents);
        let needed = |label: &Label| result.contains(label) || later.iter().any(|term| term.contains(label));
        product = Some(match product {
            None if operands.len() == 1 => sum_out(next, &needed),
            None => next,
            Some(left) => pair(left, next, &needed, budget)?,
        });
    }
    let Some(product) = product else { return Err(Unmodelled("einsum of no tensors".to_string())) };
    finish(product, &result, &shape, count)
}

/// The labels of one term for a tensor of `rank` axes.
fn labels_of(term: &str, rank: usize) -> Result<Vec<Label>, Unmodelled> {
    let wrong = || Unmodelled(format!("einsum term {term} does not fit a tensor of {rank} axes"));
    let letters = |text: &str| -> Result<Vec<Label>, Unmodelled> {
        text.chars().map(|c| if c.is_alphabetic() { Ok(Label::Letter(c)) } else { Err(wrong()) }).collect()
    };
    let labels = match term.split_once("...") {
        None => letters(term)?,
        Some((before, after)) => {
            let (before, after) = (letters(before)?, letters(after)?);
            let under = rank.checked_sub(before.len() + after.len()).ok_or_else(wrong)?;
            let ellipsis = (0..under).rev().map(Label::Ellipsis);
            before.into_iter().chain(ellipsis).chain(after).collect()
        }
    };
    if labels.len() != rank {
        return Err(wrong());
    }
    match labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label)) {
        Some(_) => Err(Unmodelled(format!("einsum term {term} repeats a letter"))),
        None => Ok(labels),
    }
}

/// Each label with its extent; extents of one broadcast.
fn extents(labels: &[Vec<Label>], operands: &[ArrayViewD<f64>]) -> Result<Vec<(Label, usize)>, Unmodelled> {
    let mut extents: Vec<(Label, usize)> = Vec::new();
    for (labels, tensor) in labels.iter().zip(operands) {
        for (&label, &extent) in labels.iter().zip(tensor.shape()) {
            match extents.iter_mut().find(|(known, _)| *known == label) {
                None => extents.push((label, extent)),
                Some((_, known)) if *known == extent || extent == 1 => {}
                Some((_, known)) if *known == 1 => *known = extent,
                Some((_, known)) => {
                    return Err(Unmodelled(format!("einsum extents {known} and {extent} of one letter differ")));
                }
            }
        }
    }
    Ok(extents)
}

/// The output of an equation without an arrow: the ellipsis, then letters that occur once, sorted.
fn implicit_output(labels: &[Vec<Label>]) -> Vec<Label> {
    let all = || labels.iter().flatten();
    let under = all().filter_map(|label| if let Label::Ellipsis(at) = label { Some(at + 1) } else { None }).max();
    let mut letters: Vec<char> =
        all().filter_map(|label| if let Label::Letter(c) = label { Some(*c) } else { None }).collect();
    letters.sort_unstable();
    let once = letters.iter().filter(|c| letters.iter().filter(|other| other == c).count() == 1);
    (0..under.unwrap_or(0)).rev().map(Label::Ellipsis).chain(once.map(|&c| Label::Letter(c))).collect()
}

/// An operand without the axes of extent one that are broadcast along a longer one.
fn without_broadcast_axes(labels: &[Label], tensor: &ArrayViewD<f64>, extents: &[(Label, usize)]) -> Labelled {
    let (mut tensor, mut kept) = (tensor.view(), Vec::new());
    for &label in labels {
        let stretched = extents.iter().any(|&(known, extent)| known == label && extent != 1);
        if stretched && tensor.shape().get(kept.len()) == Some(&1) {
            tensor = tensor.index_axis_move(Axis(kept.len()), 0);
        } else {
            kept.push(label);
        }
    }
    Labelled { labels: kept, value: tensor.to_owned(), squares: None }
}

/// Sums over the axes that nothing needs any more.
fn sum_out(mut tensor: Labelled, needed: &dyn Fn(&Label) -> bool) -> Labelled {
    while let Some(axis) = tensor.labels.iter().position(|label| !needed(label)) {
        let squares = tensor.squares.take().unwrap_or_else(|| tensor.value.mapv(|x| x * x));
        tensor.squares = Some(squares.sum_axis(Axis(axis)));
        tensor.value = tensor.value.sum_axis(Axis(axis));
        tensor.labels.remove(axis);
    }
    tensor
}

/// Multiplies two tensors and sums over the labels that neither the output nor a later operand needs.
fn pair(
    left: Labelled,
    right: Labelled,
    needed: &dyn Fn(&Label) -> bool,
    budget: usize,
) -> Result<Labelled, Unmodelled> {
    let shared = right.labels.clone();
    let left = sum_out(left, &|label| needed(label) || shared.contains(label));
    let shared = left.labels.clone();
    let right = sum_out(right, &|label| needed(label) || shared.contains(label));
    let is_shared = |label: &&Label| left.labels.contains(label) && right.labels.contains(label);
    let batch: Vec<_> = left.labels.iter().filter(is_shared).filter(|label| needed(label)).copied().collect();
    let inner: Vec<_> = left.labels.iter().filter(is_shared).filter(|label| !needed(label)).copied().collect();
    let rows: Vec<_> = left.labels.iter().filter(|label| !right.labels.contains(label)).copied().collect();
    let columns: Vec<_> = right.labels.iter().filter(|label| !left.labels.contains(label)).copied().collect();

    let labels = [batch.as_slice(), &rows, &columns].concat();
    let extent = |label: &Label| {
        let of = |tensor: &Labelled| {
            tensor.labels.iter().position(|known| known == label).and_then(|at| tensor.value.shape().get(at).copied())
        };
        of(&left).or_else(|| of(&right)).unwrap_or(1)
    };
    let shape: Vec<_> = labels.iter().map(extent).collect();
    let size = |labels: &[Label]| labels.iter().map(extent).product::<usize>();
    if !addressable(&shape) || element_count(&shape).is_none_or(|count| count > budget) {
        return Err(Unmodelled("an intermediate product of einsum outgrows its operands".to_string()));
    }
    let (b, m, k, n) = (size(&batch), size(&rows), size(&inner), size(&columns));
    let left_order = [batch.as_slice(), &rows, &inner].concat();
    let right_order = [batch.as_slice(), &inner, &columns].concat();
    let arrange = |tensor: &ArrayD<f64>, labels: &[Label], order: &[Label], shape: (usize, usize, usize)| {
        Ok::<Array3<f64>, Unmodelled>(reshaped(permuted(tensor, labels, order)?, shape)?.into_owned())
    };
    let value = multiply(
        arrange(&left.value, &left.labels, &left_order, (b, m, k))?.view(),
        arrange(&right.value, &right.labels, &right_order, (b, k, n))?.view(),
    );
    // The squares of the terms multiply and sum just as the terms do.
    let squares = if left.squares.is_none() && right.squares.is_none() {
        value.1
    } else {
        let root = |tensor: &Labelled| match &tensor.squares {
            Some(squares) => squares.mapv(f64::sqrt),
            None => tensor.value.clone(),
        };
        multiply(
            arrange(&root(&left), &left.labels, &left_order, (b, m, k))?.view(),
            arrange(&root(&right), &right.labels, &right_order, (b, k, n))?.view(),
        )
        .1
    };
    let wrong = |_| Unmodelled("an intermediate product of einsum has another shape".to_string());
    Ok(Labelled {
        labels,
        value: value.0.into_shape_with_order(IxDyn(&shape)).map_err(wrong)?,
        squares: Some(squares.into_shape_with_order(IxDyn(&shape)).map_err(wrong)?),
    })
}

/// A view with its axes in the order of `order`, which holds the same labels.
fn permuted<'a>(tensor: &'a ArrayD<f64>, labels: &[Label], order: &[Label]) -> Result<ArrayViewD<'a, f64>, Unmodelled> {
    let axes: Option<Vec<_>> = order.iter().map(|label| labels.iter().position(|known| known == label)).collect();
    match axes {
        Some(axes) if axes.len() == tensor.ndim() => Ok(tensor.view().permuted_axes(IxDyn(&axes))),
        _ => Err(Unmodelled("einsum labels do not fit their tensor".to_string())),
    }
}

/// The product in the order and shape of the output; labels whose operands were all broadcast from an
/// extent of one are missing from it and are repeated.
fn finish(product: Labelled, result: &[Label], shape: &[usize], terms: usize) -> Result<Sums, Unmodelled> {
    let present: Vec<_> = result.iter().filter(|label| product.labels.contains(label)).copied().collect();
    let product = sum_out(product, &|label| result.contains(label));
    let place = |tensor: &ArrayD<f64>| -> Result<ArrayD<f64>, Unmodelled> {
        let mut view = permuted(tensor, &product.labels, &present)?;
        for (axis, label) in result.iter().enumerate() {
            if !present.contains(label) {
                view = view.insert_axis(Axis(axis));
            }
        }
        view.broadcast(IxDyn(shape))
            .map(|view| view.as_standard_layout().into_owned())
            .ok_or_else(|| Unmodelled("einsum gives another shape".to_string()))
    };
    let squares = match &product.squares {
        Some(squares) => place(squares)?,
        None => place(&product.value)?.mapv(|x| x * x),
    };
    Ok(Sums { value: place(&product.value)?, squares, terms })
}
