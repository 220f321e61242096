//! An environment: a component of the world `environment`, which imports nothing and answers one completion in each
//! call.

use std::time::Instant;

use wasmtime::component::{ComponentType, Lift, Lower};

use crate::engine::Engine;
use crate::error::Error;
use crate::figures::group_digits;
use crate::isolated::{CallLimits, Instances, Isolated, World};
use crate::limits::Limits;
use crate::session::Value;

/// The world `environment`.
static WORLD: World = World {
    name: "environment",
    function: "respond",
    check: |function, store| function.typed::<(&str, &str, &[Turn]), (Reply,)>(store).map(drop),
};

/// An environment that was admitted and compiled; nothing of it has run.
#[derive(Clone)]
pub struct Environment {
    component: Isolated,
    message_bytes: usize,
}

/// One turn of an episode.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lower)]
#[component(variant)]
pub enum Turn {
    /// What the model wrote.
    #[component(name = "completion")]
    Completion(String),
    /// What the environment answered.
    #[component(name = "message")]
    Message(String),
}

/// What an environment returns.
#[derive(ComponentType, Lift)]
#[component(variant)]
enum Reply {
    /// The next message to the model.
    #[component(name = "message")]
    Message(String),
    /// The episode is over, with its reward, if it has one.
    #[component(name = "end")]
    End(Option<f32>),
}

/// The outcome of one call of an environment.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// The next message to the model.
    Message(String),
    /// The episode is over, with its reward, a finite number, if it has one.
    End(Option<f32>),
    /// Why there is no answer, escaped: the environment trapped, took too long, wrote too long a message, or gave
    /// infinity or NaN as the reward.
    Failed(String),
}

impl Engine {
    /// Checks a component against the world `environment` and its limits, then compiles it or loads its code from the
    /// cache. Runs nothing of it. `name` names the environment in messages, escaped and cut at 200 bytes.
    ///
    /// # Errors
    /// Of the first check that fails: [`Error::TooLarge`], [`Error::IsolatedImports`], [`Error::Mismatch`],
    /// [`Error::Malformed`], or [`Error::NotAdmitted`], also if the process that compiles it fails or passes a limit.
    pub fn admit_environment(&self, bytes: &[u8], name: &str, limits: &Limits) -> Result<Environment, Error> {
        let call_limits = CallLimits {
            seconds: limits.environment_seconds,
            instructions: limits.environment_instructions,
            memory: limits.environment_memory as u64,
        };
        let size = limits.environment_component_bytes;
        let component = Isolated::admit(self, bytes, name, &WORLD, (size, call_limits))?;
        Ok(Environment { component, message_bytes: limits.environment_message_bytes })
    }
}

/// An environment with its settings and, between calls, its instance.
pub struct Responder {
    instances: Instances,
    message_bytes: usize,
}

impl Responder {
    /// Makes an instance of the environment and calls its `init` with the settings, within the limits of one answer:
    /// `environment_seconds` or `environment_instructions`, and `environment_memory`. Every later instance gets the
    /// same settings.
    ///
    /// # Errors
    /// [`Error::Refused`] with the message that `init` returned; [`Error::NotAdmitted`] when the instance cannot be
    /// made within the limits, or `init` traps or passes a limit.
    pub fn new(environment: Environment, settings: &[(String, Value)]) -> Result<Self, Error> {
        let Environment { component, message_bytes } = environment;
        Ok(Self { instances: Instances::new(component, settings)?, message_bytes })
    }

    /// Drops the instance with all that the environment remembers. The next call makes a new one.
    pub fn drop_instance(&mut self) {
        self.instances.drop_instance();
    }

    /// Answers the last completion of `turns`, given the prompt and the record's reference answer. Makes an instance
    /// first if there is none, and drops it after a trap or timeout: all of this within `environment_seconds`, or
    /// `environment_instructions` if that is not 0, and not past `end`. Every failure, a message of more than
    /// `environment_message_bytes` and a reward of infinity or NaN included, is a [`Response::Failed`].
    pub fn respond(&mut self, prompt: &str, answer: &str, turns: &[Turn], end: Option<Instant>) -> Response {
        match self.instances.call((prompt, answer, turns), end) {
            Ok(Reply::Message(text)) if text.len() > self.message_bytes => {
                let (bytes, most) = (group_digits(text.len() as u64), group_digits(self.message_bytes as u64));
                Response::Failed(format!("its message has {bytes} bytes, at most {most} are passed on"))
            }
            Ok(Reply::Message(text)) => Response::Message(text),
            Ok(Reply::End(Some(reward))) if !reward.is_finite() => Response::Failed(format!("its reward is {reward}")),
            Ok(Reply::End(reward)) => Response::End(reward),
            Err(reason) => Response::Failed(reason),
        }
    }
}
