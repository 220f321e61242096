//! What judges a completion: a component in the sandbox, or a reward model.

use std::sync::Arc;
use std::time::Instant;

use tunebox_foundation::printable::printable;
use tunebox_model::RewardModel;
use tunebox_sandbox::{Judge, Question, Verdict};

use crate::error::Error;
use crate::plan::verifier::PlannedJudge;

/// The longest reason of a reward model that a person gets to see, in bytes.
const REASON_BYTES: usize = 400;

/// What gives the verdicts of a verifier.
pub(super) enum Judging {
    /// A component, which gets the field `field` of the record as the answer; with `fresh`, a new instance for every
    /// completion.
    Component { judge: Box<Judge>, field: String, fresh: bool },
    /// A reward model.
    Model(Arc<RewardModel>),
}

impl Judging {
    /// Starts a component once with its settings to check them, and drops the instance. Fails if it rejects its
    /// settings or cannot be started, and for a reward model that is not open.
    pub(super) fn open(planned: &PlannedJudge) -> Result<Self, Error> {
        match planned {
            PlannedJudge::Component(component) => {
                let mut judge = Judge::new(component.admitted.clone(), &component.settings)?;
                judge.drop_instance();
                let (field, fresh) = (component.field.clone(), component.fresh);
                Ok(Self::Component { judge: Box::new(judge), field, fresh })
            }
            PlannedJudge::Model(reward) => Ok(Self::Model(Arc::clone(reward.model()?))),
        }
    }

    /// Judges one completion, with the text `completion`, until `end`. A component gets the record's field as the
    /// reference answer, empty text if there is no such field; if it is to be fresh, its instance is dropped
    /// afterwards. A reward model fails on a completion whose score is not finite.
    pub(super) fn verdict(&mut self, question: &Question, completion: &str, end: Option<Instant>) -> Verdict {
        match self {
            Self::Component { judge, field, fresh } => {
                let answer = question.fields.get(field).map_or("", String::as_str);
                let verdict = judge.verdict(&question.prompt, completion, answer, end);
                if *fresh {
                    judge.drop_instance();
                }
                verdict
            }
            Self::Model(model) => match model.score(&question.prompt, completion, end) {
                Ok(value) if value.is_finite() => Verdict::Value(value),
                Ok(value) => Verdict::Failed(format!("its verdict is {value}")),
                Err(error) => Verdict::Failed(printable(&error.to_string(), REASON_BYTES)),
            },
        }
    }

    /// Drops the instance of a component with all that it remembers. A reward model remembers nothing.
    pub(super) fn drop_instance(&mut self) {
        if let Self::Component { judge, .. } = self {
            judge.drop_instance();
        }
    }
}
