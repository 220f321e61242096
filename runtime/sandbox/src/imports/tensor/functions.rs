//! The functions of `wit/tensor.wit` that belong to no tensor, and its scopes, in the same order.

use tunebox_compute::ops;
use wasmtime::component::Resource;

use super::calls::{Answer, Handle, element_type};
use crate::bindings::tensor::{Host, HostScope};
use crate::bindings::types::Dtype;
use crate::state::{Crossing, ScopeEntry};

impl Host for Crossing<'_> {
    fn add(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.add", [&a, &b], ops::add)
    }

    fn subtract(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.subtract", [&a, &b], ops::subtract)
    }

    fn multiply(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.multiply", [&a, &b], ops::multiply)
    }

    fn divide(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.divide", [&a, &b], ops::divide)
    }

    fn minimum(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.minimum", [&a, &b], ops::minimum)
    }

    fn maximum(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.maximum", [&a, &b], ops::maximum)
    }

    fn equal(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.equal", [&a, &b], ops::equal)
    }

    fn not_equal(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.not-equal", [&a, &b], ops::not_equal)
    }

    fn less(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.less", [&a, &b], ops::less)
    }

    fn less_equal(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.less-equal", [&a, &b], ops::less_equal)
    }

    fn greater(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.greater", [&a, &b], ops::greater)
    }

    fn greater_equal(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.greater-equal", [&a, &b], ops::greater_equal)
    }

    fn logical_and(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.logical-and", [&a, &b], ops::logical_and)
    }

    fn logical_or(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.logical-or", [&a, &b], ops::logical_or)
    }

    fn choose(&mut self, condition: Handle, a: Handle, b: Handle) -> Answer {
        self.triple("tensor.choose", [&condition, &a, &b], ops::choose)
    }

    fn matmul(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.matmul", [&a, &b], ops::matmul)
    }

    fn outer(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.outer", [&a, &b], ops::outer)
    }

    fn dot(&mut self, a: Handle, b: Handle) -> Answer {
        self.pair("tensor.dot", [&a, &b], ops::dot)
    }

    fn concat(&mut self, tensors: Vec<Handle>, axis: i32) -> Answer {
        self.several("tensor.concat", &tensors, |purse, tensors| ops::concat(purse, tensors, axis))
    }

    fn stack(&mut self, tensors: Vec<Handle>, axis: i32) -> Answer {
        self.several("tensor.stack", &tensors, |purse, tensors| ops::stack(purse, tensors, axis))
    }

    fn zeros(&mut self, shape: Vec<u32>, dtype: Dtype) -> Answer {
        self.create("tensor.zeros", |purse, device| ops::zeros(purse, device, &shape, element_type(dtype)))
    }

    fn ones(&mut self, shape: Vec<u32>, dtype: Dtype) -> Answer {
        self.create("tensor.ones", |purse, device| ops::ones(purse, device, &shape, element_type(dtype)))
    }

    fn full(&mut self, shape: Vec<u32>, value: f32) -> Answer {
        self.create("tensor.full", |purse, device| ops::full(purse, device, &shape, value))
    }

    fn sequence(&mut self, start: f32, step: f32, count: u32) -> Answer {
        self.create("tensor.sequence", |purse, device| ops::sequence(purse, device, start, step, count))
    }

    fn from_list(&mut self, values: Vec<f32>, shape: Vec<u32>) -> Answer {
        self.create("tensor.from-list", |purse, device| ops::from_list(purse, device, values, &shape))
    }

    fn from_indices(&mut self, values: Vec<u32>, shape: Vec<u32>) -> Answer {
        self.create("tensor.from-indices", |purse, device| ops::from_indices(purse, device, values, &shape))
    }

    fn random_normal(&mut self, sequence: String, shape: Vec<u32>) -> Answer {
        self.draw("tensor.random-normal", &sequence, |purse, device, stream| {
            ops::random_normal(purse, device, stream, &shape)
        })
    }

    fn random_uniform(&mut self, sequence: String, shape: Vec<u32>) -> Answer {
        self.draw("tensor.random-uniform", &sequence, |purse, device, stream| {
            ops::random_uniform(purse, device, stream, &shape)
        })
    }

    fn random_permutation(&mut self, sequence: String, count: u32) -> Answer {
        self.draw("tensor.random-permutation", &sequence, |purse, device, stream| {
            ops::random_permutation(purse, device, stream, count)
        })
    }
}

impl HostScope for Crossing<'_> {
    fn new(&mut self) -> wasmtime::Result<Resource<ScopeEntry>> {
        self.enter("tensor.scope.constructor")?;
        Ok(self.open_scope()?)
    }

    fn keep(&mut self, this: Resource<ScopeEntry>, tensor: Handle) -> wasmtime::Result<()> {
        self.enter("tensor.scope.keep")?;
        Ok(self.keep_beyond(&this, &tensor)?)
    }

    fn drop(&mut self, this: Resource<ScopeEntry>) -> wasmtime::Result<()> {
        Ok(self.close_scope(this)?)
    }
}
