//! A learner whose activations are given: rows are told apart by their first token, every layer holds the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tunebox_compute::{Device, Tensor};
use tunebox_model::edit::{Form, Role};
use tunebox_model::error::Error;
use tunebox_model::policy::View;
use tunebox_model::rows::Rows;
use tunebox_model::stream::{Patch, Site, Token};
use tunebox_sandbox::{Direction, Editing, Learner, Sampling, Sizes};

/// What a method asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Directions for the artifact.
    pub(crate) published: Vec<Direction>,
    /// Directions taken out of weights, with role, layer and strength.
    pub(crate) projected: Vec<(Role, usize, Vec<f32>, f32)>,
    /// How edits are kept.
    pub(crate) form: Form,
}

/// A learner of two layers over activations by the first token of a row.
pub(crate) struct GivenStream {
    table: BTreeMap<u32, Vec<f32>>,
    asked: Arc<Mutex<Asked>>,
}

impl GivenStream {
    /// A learner, and what will be asked of it.
    pub(crate) fn over(table: BTreeMap<u32, Vec<f32>>) -> (Box<dyn Learner>, Arc<Mutex<Asked>>) {
        let asked = Arc::<Mutex<Asked>>::default();
        (Box::new(Self { table, asked: asked.clone() }), asked)
    }
}

impl Sampling for GivenStream {}

/// It refuses every prompt nine times of ten, whatever is done to it.
impl Editing for GivenStream {
    fn sizes(&self) -> Sizes {
        Sizes { layers: 2, dimension: 3, vocabulary: 1_000 }
    }

    fn capture(&mut self, _: &View, rows: &Rows, layers: &[usize], _: Site, _: Token) -> Result<Tensor, Error> {
        let one: Vec<f32> = rows.ids.iter().flat_map(|ids| self.table[&ids[0]].clone()).collect();
        Ok(Tensor::from_vec(one.repeat(layers.len()), (layers.len(), rows.count(), 3), &Device::Cpu)?)
    }

    fn next_token(&mut self, _: &View, rows: &Rows, ids: &[u32]) -> Result<Tensor, Error> {
        Ok(Tensor::full((0.9 / ids.len() as f32).ln(), (rows.count(), ids.len()), &Device::Cpu)?)
    }

    fn divergence(&mut self, _: &View, _: &View, rows: &Rows) -> Result<Tensor, Error> {
        Ok(Tensor::full(0.01_f32, rows.count(), &Device::Cpu)?)
    }

    fn patch(&mut self, _: Patch) -> Result<u64, Error> {
        Ok(0)
    }

    fn matrix(&self, role: Role, _: usize) -> Result<(usize, usize), Error> {
        Ok(if role == Role::Embedding { (1_000, 3) } else { (3, 3) })
    }

    fn keep_edits_as(&mut self, form: Form) -> Result<(), Error> {
        self.asked.lock().unwrap().form = form;
        Ok(())
    }

    fn project_out(&mut self, role: Role, layer: usize, r: &[f32], strength: f32, _: bool) -> Result<(), Error> {
        self.asked.lock().unwrap().projected.push((role, layer, r.to_vec(), strength));
        Ok(())
    }

    fn publish(&mut self, direction: Direction) -> Result<(), Error> {
        self.asked.lock().unwrap().published.push(direction);
        Ok(())
    }

    fn encode(&mut self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(text.bytes().map(u32::from).collect())
    }
}

impl Learner for GivenStream {
    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn has_reference(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        0
    }
}
