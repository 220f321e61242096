//! From the name of an operation and the arguments of a row to the call.

use serde_json::Value;
use tunebox_compute::error::Result;
use tunebox_compute::ops::{self, Admit, Made};
use tunebox_compute::random::Stream;
use tunebox_compute::{Device, Tensor};

use super::row::{Row, dtype, number};

/// The results of a row.
pub(crate) fn call(row: &Row, tensors: &[Tensor], budget: &mut dyn Admit) -> Result<Vec<Tensor>> {
    Ok(made(row, tensors, budget)?.into_iter().map(|made| made.tensor).collect())
}

/// The results of a row with their reservations.
pub(crate) fn made(row: &Row, tensors: &[Tensor], budget: &mut dyn Admit) -> Result<Vec<Made>> {
    let call = Call { row, tensors };
    let made = match tensors {
        _ if row.op == "chunk" => return call.chunk(),
        _ if row.op == "concat" || row.op == "stack" => call.several(budget),
        [] => call.created(budget),
        [x] => call.unary(x, budget).unwrap_or_else(|| call.reduced(x, budget)),
        [a, b] => call.pair(a, b, budget).unwrap_or_else(|| call.indexed(a, b, budget)),
        [a, b, c] => call.triple(a, b, c, budget),
        _ => panic!("no call for {row}"),
    };
    Ok(vec![made?])
}

struct Call<'a> {
    row: &'a Row,
    tensors: &'a [Tensor],
}

type Unary = fn(&mut dyn Admit, &Tensor) -> Result<Made>;
type Pair = fn(&mut dyn Admit, &Tensor, &Tensor) -> Result<Made>;
type Reduction = fn(&mut dyn Admit, &Tensor, Option<i32>, bool) -> Result<Made>;
type Spread = fn(&mut dyn Admit, &Tensor, Option<i32>, bool, u32) -> Result<Made>;

const UNARY: [(&str, Unary); 18] = [
    ("negate", ops::negate),
    ("abs", ops::abs),
    ("square", ops::square),
    ("sqrt", ops::sqrt),
    ("exp", ops::exp),
    ("log", ops::log),
    ("log-one-plus", ops::log_one_plus),
    ("exp-minus-one", ops::exp_minus_one),
    ("reciprocal", ops::reciprocal),
    ("sigmoid", ops::sigmoid),
    ("log-sigmoid", ops::log_sigmoid),
    ("softplus", ops::softplus),
    ("relu", ops::relu),
    ("tanh", ops::tanh),
    ("sin", ops::sin),
    ("cos", ops::cos),
    ("is-finite", ops::is_finite),
    ("logical-not", ops::logical_not),
];

const PAIR: [(&str, Pair); 17] = [
    ("add", ops::add),
    ("subtract", ops::subtract),
    ("multiply", ops::multiply),
    ("divide", ops::divide),
    ("minimum", ops::minimum),
    ("maximum", ops::maximum),
    ("equal", ops::equal),
    ("not-equal", ops::not_equal),
    ("less", ops::less),
    ("less-equal", ops::less_equal),
    ("greater", ops::greater),
    ("greater-equal", ops::greater_equal),
    ("logical-and", ops::logical_and),
    ("logical-or", ops::logical_or),
    ("matmul", ops::matmul),
    ("outer", ops::outer),
    ("dot", ops::dot),
];

const REDUCTION: [(&str, Reduction); 12] = [
    ("sum", ops::sum),
    ("mean", ops::mean),
    ("max", ops::max),
    ("min", ops::min),
    ("log-sum-exp", ops::log_sum_exp),
    ("norm", ops::norm),
    ("sum-of-finite", ops::sum_of_finite),
    ("mean-of-finite", ops::mean_of_finite),
    ("count", ops::count),
    ("any", ops::any),
    ("all", ops::all),
    ("argmax", ops::argmax),
];

const SPREAD: [(&str, Spread); 3] = [
    ("variance", ops::variance),
    ("standard-deviation", ops::standard_deviation),
    ("standard-deviation-of-finite", ops::standard_deviation_of_finite),
];

fn named<F: Copy>(table: &[(&str, F)], name: &str) -> Option<F> {
    table.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

fn view(tensor: Tensor) -> Result<Made> {
    Ok(Made { tensor, reservation: None })
}

impl Call<'_> {
    fn given(&self, name: &str) -> Option<&Value> {
        self.row.arguments.get(name).filter(|value| !value.is_null())
    }

    fn scalar(&self, name: &str) -> f64 {
        number(self.given(name).unwrap())
    }

    fn small(&self, name: &str) -> f32 {
        self.scalar(name) as f32
    }

    fn count(&self, name: &str) -> u32 {
        u32::try_from(self.given(name).unwrap().as_u64().unwrap()).unwrap()
    }

    fn counts(&self, name: &str) -> Vec<u32> {
        let list = self.given(name).unwrap().as_array().unwrap();
        list.iter().map(|value| u32::try_from(value.as_u64().unwrap()).unwrap()).collect()
    }

    fn signed(&self, name: &str) -> i32 {
        i32::try_from(self.given(name).unwrap().as_i64().unwrap()).unwrap()
    }

    fn axis(&self) -> Option<i32> {
        self.given("axis").map(|_| self.signed("axis"))
    }

    fn flag(&self, name: &str) -> bool {
        self.given(name).unwrap().as_bool().unwrap()
    }

    fn chunk(&self) -> Result<Vec<Made>> {
        ops::chunk(&self.tensors[0], self.signed("axis"), self.count("count"))
    }

    fn several(&self, budget: &mut dyn Admit) -> Result<Made> {
        let tensors: Vec<&Tensor> = self.tensors.iter().collect();
        let function = if self.row.op == "stack" { ops::stack } else { ops::concat };
        function(budget, &tensors, self.signed("axis"))
    }

    fn created(&self, budget: &mut dyn Admit) -> Result<Made> {
        let device = &Device::Cpu;
        let numbers = || self.given("values").unwrap().as_array().unwrap();
        let stream = &mut Stream::new(1, "rows");
        match self.row.op.as_str() {
            "zeros" => ops::zeros(budget, device, &self.counts("shape"), dtype(&self.row.arguments["dtype"])),
            "ones" => ops::ones(budget, device, &self.counts("shape"), dtype(&self.row.arguments["dtype"])),
            "full" => ops::full(budget, device, &self.counts("shape"), self.small("value")),
            "sequence" => ops::sequence(budget, device, self.small("start"), self.small("step"), self.count("count")),
            "from-list" => {
                let values = numbers().iter().map(|value| number(value) as f32).collect();
                ops::from_list(budget, device, values, &self.counts("shape"))
            }
            "from-indices" => ops::from_indices(budget, device, self.counts("values"), &self.counts("shape")),
            "random-normal" => ops::random_normal(budget, device, stream, &self.counts("shape")),
            "random-uniform" => ops::random_uniform(budget, device, stream, &self.counts("shape")),
            "random-permutation" => ops::random_permutation(budget, device, stream, self.count("count")),
            _ => panic!("no call for {}", self.row),
        }
    }

    fn unary(&self, x: &Tensor, budget: &mut dyn Admit) -> Option<Result<Made>> {
        if let Some(function) = named(&UNARY, &self.row.op) {
            return Some(function(budget, x));
        }
        let optional = |name: &str| self.given(name).map(number);
        Some(match self.row.op.as_str() {
            "shape" => {
                let dims: Vec<u32> = x.dims().iter().map(|length| u32::try_from(*length).unwrap()).collect();
                view(Tensor::new(dims, &Device::Cpu).unwrap())
            }
            "dtype" => view(x.clone()),
            "item" => ops::item(x).and_then(|number| view(Tensor::new(number, &Device::Cpu).unwrap())),
            "copy-to-list" => ops::list(x).and_then(|list| view(Tensor::new(list, &Device::Cpu).unwrap())),
            "add-scalar" => ops::add_scalar(budget, x, self.scalar("value")),
            "scale" => ops::scale(budget, x, self.scalar("value")),
            "power" => ops::power(budget, x, self.scalar("exponent")),
            "clamp" => ops::clamp(budget, x, optional("low"), optional("high")),
            "replace-non-finite" => ops::replace_non_finite(budget, x, self.scalar("value")),
            "detach" => ops::detach(x),
            "cast" => ops::cast(budget, x, dtype(&self.row.arguments["dtype"])),
            "quantile" => ops::quantile(budget, x, self.scalar("q")),
            "reshape" => ops::reshape(budget, x, &self.counts("shape")),
            "expand" => ops::expand(x, &self.counts("shape")),
            "transpose" => ops::transpose(x, self.signed("first"), self.signed("second")),
            _ => return None,
        })
    }

    /// Functions along an axis.
    fn reduced(&self, x: &Tensor, budget: &mut dyn Admit) -> Result<Made> {
        if let Some(function) = named(&REDUCTION, &self.row.op) {
            return function(budget, x, self.axis(), self.flag("keep"));
        }
        if let Some(function) = named(&SPREAD, &self.row.op) {
            return function(budget, x, self.axis(), self.flag("keep"), self.count("correction"));
        }
        let axis = self.signed("axis");
        match self.row.op.as_str() {
            "cumulative-sum" => ops::cumulative_sum(budget, x, axis),
            "softmax" => ops::softmax(budget, x, axis),
            "log-softmax" => ops::log_softmax(budget, x, axis),
            "sort" => ops::sort(budget, x, axis, self.flag("descending")),
            "argsort" => ops::argsort(budget, x, axis, self.flag("descending")),
            "top" => ops::top(budget, x, axis, self.count("count")),
            "slice" => ops::slice(x, axis, self.count("start"), self.count("length")),
            "unsqueeze" => ops::unsqueeze(x, axis),
            "squeeze" => ops::squeeze(x, axis),
            "roll" => ops::roll(budget, x, axis, self.signed("shift")),
            "flip" => ops::flip(budget, x, axis),
            _ => panic!("no call for {}", self.row),
        }
    }

    fn pair(&self, a: &Tensor, b: &Tensor, budget: &mut dyn Admit) -> Option<Result<Made>> {
        named(&PAIR, &self.row.op).map(|function| function(budget, a, b))
    }

    fn indexed(&self, a: &Tensor, b: &Tensor, budget: &mut dyn Admit) -> Result<Made> {
        match self.row.op.as_str() {
            "masked-sum" => ops::masked_sum(budget, a, b, self.axis(), self.flag("keep")),
            "masked-mean" => ops::masked_mean(budget, a, b, self.axis(), self.flag("keep")),
            "gather" => ops::gather(budget, a, self.signed("axis"), b),
            "index-select" => ops::index_select(budget, a, self.signed("axis"), b),
            "segment-sum" => ops::segment_sum(budget, a, b, self.count("count")),
            _ => panic!("no call for {}", self.row),
        }
    }

    fn triple(&self, a: &Tensor, b: &Tensor, c: &Tensor, budget: &mut dyn Admit) -> Result<Made> {
        match self.row.op.as_str() {
            "choose" => ops::choose(budget, a, b, c),
            "index-add" => ops::index_add(budget, a, self.signed("axis"), b, c),
            _ => panic!("no call for {}", self.row),
        }
    }
}
