//! The queue and its timeline: submissions are numbered, each signals its number, and everything a
//! submission uses is held until its number has been seen.
//!
//! Waits have a deadline, but no wait is ever abandoned with work pending, since pending work can be
//! neither stopped nor freed: past the deadline comes one warning, then more waiting, which the caller
//! may interrupt. A real hang is ended by the kernel's watchdog, and arrives as [`Error::Lost`].

use super::device::Device;
use super::error::{Error, api};
use super::record::Recorded;
use super::transfer::Transfer;
use ash::vk;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// How long a wait may take, and what then.
pub struct Patience<'a> {
    /// Predicted time of the work. The deadline is five times this and two seconds.
    pub expected: Duration,
    /// Called once, past the deadline, with a line that names the submission.
    pub on_late: &'a dyn Fn(&str),
    /// Asked ten times a second, past the deadline, whether to give up waiting.
    pub cancelled: &'a dyn Fn() -> bool,
}

impl Default for Patience<'_> {
    /// Expects little, tells nobody, never gives up.
    fn default() -> Self {
        Self { expected: Duration::from_millis(250), on_late: &|_| {}, cancelled: &|| false }
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The work is done and its results are visible to the host.
    Done,
    /// The caller gave up; the work is still pending and its buffers still in use.
    GivenUp,
}

/// The device's queue, owned by the one thread that submits.
pub struct Queue {
    pub(super) device: Arc<Device>,
    raw: vk::Queue,
    timeline: vk::Semaphore,
    /// Number and label of the last submission.
    last: (u64, String),
    completed: u64,
    /// What submissions in flight use, in order.
    in_flight: VecDeque<(u64, Arc<Recorded>)>,
    pub(super) transfer: Option<Transfer>,
    lost: bool,
    /// What the driver said about the loss.
    fault: Option<String>,
}

/// How long a wait polls before it sleeps: a decode step is about as long as one wake-up is late.
const SPIN: Duration = Duration::from_micros(50);
/// Longest uninterrupted sleep.
const NAP: Duration = Duration::from_millis(100);

impl Queue {
    pub(super) fn new(device: &Arc<Device>, family: u32) -> Result<Self, Error> {
        // SAFETY: The device was created with one queue of this family.
        let raw = unsafe { device.raw().get_device_queue(family, 0) };
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: The device has timeline semaphores.
        let timeline = unsafe { device.raw().create_semaphore(&info, None) }
            .map_err(api("vkCreateSemaphore"))?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            timeline,
            last: (0, "nothing".to_owned()),
            completed: 0,
            in_flight: VecDeque::new(),
            transfer: None,
            lost: false,
            fault: None,
        })
    }

    /// Submits a recorded graph behind everything submitted before.
    ///
    /// # Errors
    /// [`Error::Busy`] while its last run has not been seen complete; [`Error::Lost`].
    pub fn submit(&mut self, recorded: &Arc<Recorded>) -> Result<Ticket, Error> {
        assert!(recorded.is_of(&self.device), "`{}` is of another device", recorded.label());
        if recorded.last() > self.poll()? {
            return Err(Error::Busy(recorded.label().to_owned()));
        }
        let ticket = self.submit_raw(recorded.commands(), recorded.label())?;
        recorded.submitted(ticket.0);
        self.in_flight.push_back((ticket.0, Arc::clone(recorded)));
        Ok(ticket)
    }

    /// Submits and waits.
    pub fn run(&mut self, recorded: &Arc<Recorded>, patience: &Patience<'_>) -> Result<(), Error> {
        let ticket = self.submit(recorded)?;
        match self.wait(ticket, patience)? {
            Waited::Done => Ok(()),
            Waited::GivenUp => Err(Error::Busy(recorded.label().to_owned())),
        }
    }

    /// Waits until a submission has run.
    ///
    /// # Errors
    /// [`Error::Lost`] when the device is lost meanwhile.
    pub fn wait(&mut self, ticket: Ticket, patience: &Patience<'_>) -> Result<Waited, Error> {
        let start = Instant::now();
        let deadline = patience.expected * 5 + Duration::from_secs(2);
        let mut late = false;
        while self.poll()? < ticket.0 {
            let elapsed = start.elapsed();
            if elapsed < SPIN {
                std::hint::spin_loop();
                continue;
            }
            if elapsed > deadline {
                if !late {
                    (patience.on_late)(&format!(
                        "`{}` takes longer than expected ({:.1} s), still waiting",
                        self.last.1,
                        elapsed.as_secs_f64()
                    ));
                    late = true;
                }
                if (patience.cancelled)() {
                    return Ok(Waited::GivenUp);
                }
            }
            self.sleep(ticket)?;
        }
        Ok(Waited::Done)
    }

    /// Whether a submission has run.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool, Error> {
        Ok(self.poll()? >= ticket.0)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes the device seem lost after so many more submissions, and its successors, which share its drill, after so
    /// many of theirs. For tests of recovery.
    #[doc(hidden)]
    pub fn pretend_lost_after(&mut self, submissions: &[u64]) {
        self.device.drill().lose_after(submissions);
    }

    pub(super) fn submit_raw(
        &mut self,
        commands: vk::CommandBuffer,
        label: &str,
    ) -> Result<Ticket, Error> {
        let number = self.last.0 + 1;
        self.last = (number, label.to_owned());
        self.lost |= self.device.drill().submit();
        if self.lost {
            return Err(self.lost());
        }
        let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let signals = [vk::SemaphoreSubmitInfo::default()
            .semaphore(self.timeline)
            .value(number)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
        let info = [vk::SubmitInfo2::default()
            .command_buffer_infos(&buffers)
            .signal_semaphore_infos(&signals)];
        // SAFETY: `&mut self` is the only user of the queue. The commands are recorded, not pending, and
        // held by the caller of this until the timeline reaches `number`.
        let sent = unsafe { self.device.raw().queue_submit2(self.raw, &info, vk::Fence::null()) };
        sent.map_err(|code| self.failed("vkQueueSubmit2", code))?;
        Ok(Ticket(number))
    }

    /// Asks how far the device is, and lets go of what has run.
    fn poll(&mut self) -> Result<u64, Error> {
        if self.lost {
            return Err(self.lost());
        }
        // SAFETY: The semaphore is a timeline of this device.
        let value = unsafe { self.device.raw().get_semaphore_counter_value(self.timeline) };
        self.completed = value.map_err(|code| self.failed("vkGetSemaphoreCounterValue", code))?;
        while self.in_flight.front().is_some_and(|f| f.0 <= self.completed) {
            self.in_flight.pop_front();
        }
        Ok(self.completed)
    }

    fn sleep(&mut self, ticket: Ticket) -> Result<(), Error> {
        let (semaphores, values) = ([self.timeline], [ticket.0]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nap = u64::try_from(NAP.as_nanos()).expect("a tenth of a second");
        // SAFETY: The semaphore is a timeline of this device.
        match unsafe { self.device.raw().wait_semaphores(&info, nap) } {
            Ok(()) | Err(vk::Result::TIMEOUT) => Ok(()),
            Err(code) => Err(self.failed("vkWaitSemaphores", code)),
        }
    }

    fn failed(&mut self, call: &'static str, code: vk::Result) -> Error {
        if code == vk::Result::ERROR_DEVICE_LOST {
            self.lost = true;
            self.fault = self.device.fault();
            return self.lost();
        }
        api(call)(code)
    }

    fn lost(&self) -> Error {
        let (submitted, label) = self.last.clone();
        let fault = self.fault.as_ref().map_or_else(String::new, |text| format!(": {text}"));
        Error::Lost { label, submitted, completed: self.completed, fault }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: `&mut self` is the only user of the queue.
        let idle = unsafe { self.device.raw().device_wait_idle() };
        // A lost device has nothing left in flight, and any other failure cannot be helped here.
        let _ = idle;
        self.in_flight.clear();
        self.transfer = None;
        // SAFETY: Nothing runs, so nothing signals it any more.
        unsafe { self.device.raw().destroy_semaphore(self.timeline, None) };
    }
}
