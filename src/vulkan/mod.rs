//! Vulkan, made safe. Every `ash` name stops at the border of this folder.
//!
//! Owned handles destroy themselves and hold what they depend on. A [`Graph`] of levels is checked once,
//! recorded once, and submitted as often as wanted; what a submission uses lives until the timeline says
//! that it has run. Nothing here knows a model, a tensor or a token.
//!
//! Deliberately absent: run-time hazard tracking (levels say it all), buffer device addresses, images,
//! more than one queue.
#![expect(unsafe_code, reason = "this folder is where the driver is called")]

mod error;

mod caps;
mod entry;
mod info;
mod query;

mod choose;

mod device;
mod drill;

mod free_list;
mod import;
mod memory;

mod buffer;

mod check;
mod descriptor;
mod fetch;
mod inspect;
mod pipeline;
mod profile;
mod record;
mod stage;

mod submit;
mod transfer;

pub use buffer::{Buffer, Slice};
pub use caps::{Ability, Caps, Limits, Subgroups};
pub use check::{Access, Fault};
pub use choose::{Listed, Rank, Request, choose, list};
pub use device::{Device, Options};
pub use drill::Drill;
pub use entry::{Instance, Validation};
pub use error::Error;
pub use fetch::{Fetch, Fetched, Fetching};
pub use import::import;
pub use info::{DeviceInfo, Kind};
pub use inspect::Executable;
pub use memory::{Arena, Residence};
pub use pipeline::{Binding, Pipeline, Program};
pub use profile::Timing;
pub use query::PhysicalDevice;
pub use record::{Cost, Graph, Grid, Node, Recorded};
pub use stage::Stage;
pub use submit::{Patience, Queue, Ticket, Waited};

#[cfg(test)]
pub(crate) use caps::tests::lavapipe;
