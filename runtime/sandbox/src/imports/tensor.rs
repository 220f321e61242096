//! `wit/tensor.wit`, kept: one function for each there, in the same order. Here the methods of `tensor`;
//! `functions` keeps the rest, `calls` what all of them have in common.
//!
//! Each one looks its operands up and hands them to `compute::ops`, which checks the other arguments and
//! asks the session's purse before it computes.

mod calls;
mod functions;
#[cfg(test)]
mod tests;

use tunebox_compute::ops;

use self::calls::{Answer, Handle, element_type, element_type_of};
use crate::bindings::tensor::HostTensor;
use crate::bindings::types::Dtype;
use crate::refusal::Refusal;
use crate::state::Crossing;

impl HostTensor for Crossing<'_> {
    fn shape(&mut self, this: Handle) -> wasmtime::Result<Vec<u32>> {
        self.enter("tensor.tensor.shape")?;
        let dims = self.held(&this)?.tensor.dims().to_vec();
        Ok(dims.into_iter().map(u32::try_from).collect::<Result<_, _>>()?)
    }

    fn dtype(&mut self, this: Handle) -> wasmtime::Result<Dtype> {
        self.enter("tensor.tensor.dtype")?;
        let held = self.held(&this)?;
        Ok(element_type_of(held.tensor.dtype())?)
    }

    fn item(&mut self, this: Handle) -> Result<f32, Refusal> {
        self.enter("tensor.tensor.item")?;
        let held = self.held(&this)?;
        let number = ops::item(&held.tensor)?;
        self.read_back(ops::read_bytes(&held.tensor))?;
        Ok(number)
    }

    fn copy_to_list(&mut self, this: Handle) -> Result<Vec<f32>, Refusal> {
        self.enter("tensor.tensor.copy-to-list")?;
        let held = self.held(&this)?;
        self.read_back(ops::read_bytes(&held.tensor))?;
        self.work(held.tensor.elem_count() as u64)?;
        Ok(ops::list(&held.tensor)?)
    }

    fn negate(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.negate", &this, ops::negate)
    }

    fn abs(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.abs", &this, ops::abs)
    }

    fn square(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.square", &this, ops::square)
    }

    fn sqrt(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.sqrt", &this, ops::sqrt)
    }

    fn exp(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.exp", &this, ops::exp)
    }

    fn log(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.log", &this, ops::log)
    }

    fn log_one_plus(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.log-one-plus", &this, ops::log_one_plus)
    }

    fn exp_minus_one(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.exp-minus-one", &this, ops::exp_minus_one)
    }

    fn reciprocal(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.reciprocal", &this, ops::reciprocal)
    }

    fn sigmoid(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.sigmoid", &this, ops::sigmoid)
    }

    fn log_sigmoid(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.log-sigmoid", &this, ops::log_sigmoid)
    }

    fn softplus(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.softplus", &this, ops::softplus)
    }

    fn relu(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.relu", &this, ops::relu)
    }

    fn tanh(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.tanh", &this, ops::tanh)
    }

    fn sin(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.sin", &this, ops::sin)
    }

    fn cos(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.cos", &this, ops::cos)
    }

    fn add_scalar(&mut self, this: Handle, value: f64) -> Answer {
        self.unary("tensor.tensor.add-scalar", &this, |purse, x| ops::add_scalar(purse, x, value))
    }

    fn scale(&mut self, this: Handle, value: f64) -> Answer {
        self.unary("tensor.tensor.scale", &this, |purse, x| ops::scale(purse, x, value))
    }

    fn power(&mut self, this: Handle, exponent: f64) -> Answer {
        self.unary("tensor.tensor.power", &this, |purse, x| ops::power(purse, x, exponent))
    }

    fn clamp(&mut self, this: Handle, low: Option<f64>, high: Option<f64>) -> Answer {
        self.unary("tensor.tensor.clamp", &this, |purse, x| ops::clamp(purse, x, low, high))
    }

    fn replace_non_finite(&mut self, this: Handle, value: f64) -> Answer {
        self.unary("tensor.tensor.replace-non-finite", &this, |purse, x| ops::replace_non_finite(purse, x, value))
    }

    fn is_finite(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.is-finite", &this, ops::is_finite)
    }

    fn logical_not(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.logical-not", &this, ops::logical_not)
    }

    fn detach(&mut self, this: Handle) -> Answer {
        self.unary("tensor.tensor.detach", &this, |_, x| Ok(ops::detach(x)))
    }

    fn cast(&mut self, this: Handle, dtype: Dtype) -> Answer {
        self.unary("tensor.tensor.cast", &this, |purse, x| ops::cast(purse, x, element_type(dtype)))
    }

    fn sum(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.sum", &this, |purse, x| ops::sum(purse, x, axis, keep))
    }

    fn mean(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.mean", &this, |purse, x| ops::mean(purse, x, axis, keep))
    }

    fn max(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.max", &this, |purse, x| ops::max(purse, x, axis, keep))
    }

    fn min(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.min", &this, |purse, x| ops::min(purse, x, axis, keep))
    }

    fn log_sum_exp(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.log-sum-exp", &this, |purse, x| ops::log_sum_exp(purse, x, axis, keep))
    }

    fn norm(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.norm", &this, |purse, x| ops::norm(purse, x, axis, keep))
    }

    fn sum_of_finite(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.sum-of-finite", &this, |purse, x| ops::sum_of_finite(purse, x, axis, keep))
    }

    fn mean_of_finite(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.mean-of-finite", &this, |purse, x| ops::mean_of_finite(purse, x, axis, keep))
    }

    fn variance(&mut self, this: Handle, axis: Option<i32>, keep: bool, correction: u32) -> Answer {
        self.unary("tensor.tensor.variance", &this, |purse, x| ops::variance(purse, x, axis, keep, correction))
    }

    fn standard_deviation(&mut self, this: Handle, axis: Option<i32>, keep: bool, correction: u32) -> Answer {
        self.unary("tensor.tensor.standard-deviation", &this, |purse, x| {
            ops::standard_deviation(purse, x, axis, keep, correction)
        })
    }

    fn standard_deviation_of_finite(&mut self, this: Handle, axis: Option<i32>, keep: bool, correction: u32) -> Answer {
        self.unary("tensor.tensor.standard-deviation-of-finite", &this, |purse, x| {
            ops::standard_deviation_of_finite(purse, x, axis, keep, correction)
        })
    }

    fn count(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.count", &this, |purse, x| ops::count(purse, x, axis, keep))
    }

    fn any(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.any", &this, |purse, x| ops::any(purse, x, axis, keep))
    }

    fn all(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.all", &this, |purse, x| ops::all(purse, x, axis, keep))
    }

    fn argmax(&mut self, this: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.unary("tensor.tensor.argmax", &this, |purse, x| ops::argmax(purse, x, axis, keep))
    }

    fn masked_sum(&mut self, this: Handle, mask: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.pair("tensor.tensor.masked-sum", [&this, &mask], |purse, a, b| ops::masked_sum(purse, a, b, axis, keep))
    }

    fn masked_mean(&mut self, this: Handle, mask: Handle, axis: Option<i32>, keep: bool) -> Answer {
        self.pair("tensor.tensor.masked-mean", [&this, &mask], |purse, a, b| ops::masked_mean(purse, a, b, axis, keep))
    }

    fn cumulative_sum(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.cumulative-sum", &this, |purse, x| ops::cumulative_sum(purse, x, axis))
    }

    fn softmax(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.softmax", &this, |purse, x| ops::softmax(purse, x, axis))
    }

    fn log_softmax(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.log-softmax", &this, |purse, x| ops::log_softmax(purse, x, axis))
    }

    fn sort(&mut self, this: Handle, axis: i32, descending: bool) -> Answer {
        self.unary("tensor.tensor.sort", &this, |purse, x| ops::sort(purse, x, axis, descending))
    }

    fn argsort(&mut self, this: Handle, axis: i32, descending: bool) -> Answer {
        self.unary("tensor.tensor.argsort", &this, |purse, x| ops::argsort(purse, x, axis, descending))
    }

    fn top(&mut self, this: Handle, axis: i32, count: u32) -> Answer {
        self.unary("tensor.tensor.top", &this, |purse, x| ops::top(purse, x, axis, count))
    }

    fn quantile(&mut self, this: Handle, q: f64) -> Answer {
        self.unary("tensor.tensor.quantile", &this, |purse, x| ops::quantile(purse, x, q))
    }

    fn gather(&mut self, this: Handle, axis: i32, index: Handle) -> Answer {
        self.pair("tensor.tensor.gather", [&this, &index], |purse, a, b| ops::gather(purse, a, axis, b))
    }

    fn index_select(&mut self, this: Handle, axis: i32, index: Handle) -> Answer {
        self.pair("tensor.tensor.index-select", [&this, &index], |purse, a, b| ops::index_select(purse, a, axis, b))
    }

    fn index_add(&mut self, this: Handle, axis: i32, index: Handle, source: Handle) -> Answer {
        self.triple("tensor.tensor.index-add", [&this, &index, &source], |purse, x, index, source| {
            ops::index_add(purse, x, axis, index, source)
        })
    }

    fn segment_sum(&mut self, this: Handle, segments: Handle, count: u32) -> Answer {
        self.pair("tensor.tensor.segment-sum", [&this, &segments], |purse, a, b| ops::segment_sum(purse, a, b, count))
    }

    fn slice(&mut self, this: Handle, axis: i32, start: u32, length: u32) -> Answer {
        self.unary("tensor.tensor.slice", &this, |_, x| ops::slice(x, axis, start, length))
    }

    fn chunk(&mut self, this: Handle, axis: i32, count: u32) -> Result<Vec<Handle>, Refusal> {
        self.enter("tensor.tensor.chunk")?;
        let held = self.held(&this)?;
        let parts = ops::chunk(&held.tensor, axis, count)?;
        parts.into_iter().map(|part| self.give_made(part, &[&held])).collect()
    }

    fn reshape(&mut self, this: Handle, shape: Vec<u32>) -> Answer {
        self.unary("tensor.tensor.reshape", &this, |purse, x| ops::reshape(purse, x, &shape))
    }

    fn transpose(&mut self, this: Handle, first: i32, second: i32) -> Answer {
        self.unary("tensor.tensor.transpose", &this, |_, x| ops::transpose(x, first, second))
    }

    fn unsqueeze(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.unsqueeze", &this, |_, x| ops::unsqueeze(x, axis))
    }

    fn squeeze(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.squeeze", &this, |_, x| ops::squeeze(x, axis))
    }

    fn expand(&mut self, this: Handle, shape: Vec<u32>) -> Answer {
        self.unary("tensor.tensor.expand", &this, |_, x| ops::expand(x, &shape))
    }

    fn roll(&mut self, this: Handle, axis: i32, shift: i32) -> Answer {
        self.unary("tensor.tensor.roll", &this, |purse, x| ops::roll(purse, x, axis, shift))
    }

    fn flip(&mut self, this: Handle, axis: i32) -> Answer {
        self.unary("tensor.tensor.flip", &this, |purse, x| ops::flip(purse, x, axis))
    }

    fn drop(&mut self, this: Handle) -> wasmtime::Result<()> {
        Ok(self.free(this)?)
    }
}
