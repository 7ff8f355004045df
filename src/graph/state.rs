//! A session's state, part by part, for files.
//!
//! Reading is in two halves, so that it costs the thread that runs steps almost nothing: it submits a copy, which runs
//! behind the last step, and later hands over what has arrived; making file bytes of that is another thread's work.
//! Whole pages of rows travel: rows that the state does not have are left out when file bytes are made, and mean
//! nothing when they are written.

use super::Error;
use super::backend::Backend;
use super::step::Kv;
use crate::kernels::control::PAGE_TOKENS;
use crate::kernels::kv::{KvLayout, KvPlanes, Side};
use crate::model::{PART_ROWS, SlotId, StatePart};
use crate::vulkan::{Fetch, Fetched, Fetching, Slice, Stage};
use std::ops::Range;

/// Largest part that is read or written at once.
pub const PART_BYTES: usize = 1 << 20;
/// Parts that may be under way or being read.
const FETCH_SLOTS: usize = 8;
const STAGE_SLOTS: usize = 4;

const _: () = assert!(PART_ROWS == PAGE_TOKENS, "parts begin with a page");

/// The two directions, made when first used.
#[derive(Default)]
pub(super) struct Ferry {
    fetch: Option<Fetch>,
    stage: Option<Stage>,
}

/// A part on its way to the host.
pub struct Reading {
    copy: Fetching,
    form: Form,
}

/// A part as the device has it, on the host.
pub struct RawPart {
    bytes: Fetched,
    form: Form,
}

/// How the bytes of a device become those of a file.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// As they are.
    Plain { bytes: usize },
    /// Codes of whole pages, then their scales.
    Rows { layout: KvLayout, side: Side, rows: usize, codes: usize, scales: usize },
    /// A ring of convolution rows at a position.
    Ring { taps: usize, row_bytes: usize, pos: usize },
}

impl Reading {
    /// Waits until it has arrived.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn finish(self, backend: &mut Backend) -> Result<RawPart, Error> {
        let bytes = self.copy.finish(&mut backend.gpu.queue)?;
        Ok(RawPart { bytes, form: self.form })
    }
}

impl RawPart {
    /// Appends the part's bytes as files hold them.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.form {
            Form::Plain { bytes } => {
                out.resize(start + bytes, 0);
                self.bytes.read(0, &mut out[start..]);
            }
            Form::Rows { layout, side, rows, codes, scales } => {
                let mut pages = vec![0; codes + scales];
                self.bytes.read(0, &mut pages);
                let (codes, scales) = pages.split_at(codes);
                out.resize(start + rows * layout.row_bytes(side), 0);
                layout.get_rows(side, &mut out[start..], 0, [codes, scales]);
            }
            Form::Ring { taps, row_bytes, pos } => {
                out.resize(start + (taps - 1) * row_bytes, 0);
                for (row, back) in out[start..].chunks_exact_mut(row_bytes).zip((1..taps).rev()) {
                    self.bytes.read((ring_place(pos, back, taps) * row_bytes) as u64, row);
                }
            }
        }
    }
}

/// Where the row of `back` positions before `pos` is in a ring.
fn ring_place(pos: usize, back: usize, taps: usize) -> usize {
    (pos + taps - back) % taps
}

impl Backend {
    /// Starts to read a part of the state after `pos` tokens: rows from `kv`, the rest from `slot`. `None` when as
    /// many as may be are under way or held.
    ///
    /// # Errors
    /// When there is no such slot, or the device is lost.
    ///
    /// # Panics
    /// When the model has no such part, or it is larger than [`PART_BYTES`] allows.
    pub fn read_state(
        &mut self,
        (kv, slot, pos): (&Kv, SlotId, usize),
        part: &StatePart,
    ) -> Result<Option<Reading>, Error> {
        self.check_slot(slot)?;
        let (slices, form) = match part {
            StatePart::Keys { index, rows } => self.rows_of(kv, Side::Keys, *index, rows),
            StatePart::Values { index, rows } => self.rows_of(kv, Side::Values, *index, rows),
            StatePart::Conv { index } => {
                let (taps, row_bytes) = (self.shape.conv_taps, self.shape.conv_channels * 4);
                (vec![self.ring(slot, *index)], Form::Ring { taps, row_bytes, pos })
            }
            StatePart::Matrix { index, heads } => {
                let slice = self.matrices(slot, *index, heads);
                let bytes = usize::try_from(slice.bytes).expect("a part is small");
                (vec![slice], Form::Plain { bytes })
            }
        };
        if self.ferry.fetch.is_none() {
            let bytes = self.largest_part();
            self.ferry.fetch = Some(Fetch::new(&self.gpu.device, FETCH_SLOTS, bytes)?);
        }
        let fetch = self.ferry.fetch.as_mut().expect("made above");
        let copy = fetch.start(&mut self.gpu.queue, &slices)?;
        Ok(copy.map(|copy| Reading { copy, form }))
    }

    /// Sets what [`Backend::read_state`] gives. What is submitted later sees it.
    ///
    /// # Errors
    /// As that.
    ///
    /// # Panics
    /// As that, and when the bytes are not as many as the part has.
    pub fn write_state(
        &mut self,
        (kv, slot, pos): (&Kv, SlotId, usize),
        part: &StatePart,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.check_slot(slot)?;
        match part {
            StatePart::Keys { index, rows } => self.put_rows(kv, Side::Keys, (*index, rows), bytes),
            StatePart::Values { index, rows } => {
                self.put_rows(kv, Side::Values, (*index, rows), bytes)
            }
            StatePart::Conv { index } => {
                let taps = self.shape.conv_taps;
                let to = self.ring(slot, *index);
                let row_bytes = self.shape.conv_channels * 4;
                assert_eq!(bytes.len(), (taps - 1) * row_bytes, "bytes of convolution rows");
                let fill = |out: &mut [u8]| {
                    // The oldest place is that of the next row; until then nobody reads it.
                    out.fill(0);
                    for (row, back) in bytes.chunks_exact(row_bytes).zip((1..taps).rev()) {
                        let at = ring_place(pos, back, taps) * row_bytes;
                        out[at..at + row_bytes].copy_from_slice(row);
                    }
                };
                self.put(&to, fill)
            }
            StatePart::Matrix { index, heads } => {
                let to = self.matrices(slot, *index, heads);
                self.put(&to, |out| out.copy_from_slice(bytes))
            }
        }
    }

    /// Waits until everything written has arrived.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn finish_state(&mut self) -> Result<(), Error> {
        match &mut self.ferry.stage {
            Some(stage) => Ok(stage.finish(&mut self.gpu.queue)?),
            None => Ok(()),
        }
    }

    fn put(&mut self, to: &Slice, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        if self.ferry.stage.is_none() {
            let bytes = self.largest_part();
            self.ferry.stage = Some(Stage::new(&self.gpu.device, STAGE_SLOTS, bytes)?);
        }
        let stage = self.ferry.stage.as_mut().expect("made above");
        Ok(stage.put(&mut self.gpu.queue, std::slice::from_ref(to), fill)?)
    }

    fn put_rows(
        &mut self,
        kv: &Kv,
        side: Side,
        (index, rows): (usize, &Range<usize>),
        bytes: &[u8],
    ) -> Result<(), Error> {
        let layout = self.layout();
        assert_eq!(bytes.len(), rows.len() * layout.row_bytes(side), "bytes of rows");
        let (slices, _) = self.rows_of(kv, side, index, rows);
        let [codes, scales] = plane_bytes(&layout, side, rows);
        let mut pages = vec![0; codes + scales];
        let (code_bytes, scale_bytes) = pages.split_at_mut(codes);
        layout.put_rows(side, bytes, 0, [code_bytes, scale_bytes]);
        let mut rest = &pages[..];
        for slice in &slices {
            let (part, behind) =
                rest.split_at(usize::try_from(slice.bytes).expect("a part is small"));
            self.put(slice, |out| out.copy_from_slice(part))?;
            rest = behind;
        }
        Ok(())
    }

    /// Where the pages of some rows lie, codes and, if there are any, scales.
    fn rows_of(
        &self,
        kv: &Kv,
        side: Side,
        index: usize,
        rows: &Range<usize>,
    ) -> (Vec<Slice>, Form) {
        assert!(rows.start.is_multiple_of(PAGE_TOKENS), "rows from {} on", rows.start);
        assert!(rows.end <= self.options.ctx, "rows up to {} of a context", rows.end);
        let layout = self.layout();
        let planes = match side {
            Side::Keys => &self.kv.keys[index],
            Side::Values => &self.kv.values[index],
        };
        let first = self.kv.page(kv.place) as usize + rows.start / PAGE_TOKENS;
        let pages = first..first + rows.len().div_ceil(PAGE_TOKENS);
        // Ranges of a buffer with no more pages than these: offsets within each plane.
        let [codes, scales] = layout.ranges(side, pages.end, pages);
        let KvPlanes { codes: code_plane, scales: scale_plane } = planes;
        let before = codes.end;
        let slice = |plane: &Slice, range: Range<u64>| {
            plane.buffer.slice(plane.offset + range.start, range.end - range.start)
        };
        let mut slices = vec![slice(code_plane, codes)];
        if scales.start < scales.end {
            slices.push(slice(scale_plane, scales.start - before..scales.end - before));
        }
        let [codes, scales] = plane_bytes(&layout, side, rows);
        (slices, Form::Rows { layout, side, rows: rows.len(), codes, scales })
    }

    fn ring(&self, slot: SlotId, index: usize) -> Slice {
        let bytes = (self.shape.conv_rows_len() * 4) as u64;
        let all = &self.states.rings[index];
        all.buffer.slice(all.offset + u64::from(slot.0) * bytes, bytes)
    }

    fn matrices(&self, slot: SlotId, index: usize, heads: &Range<usize>) -> Slice {
        let each = (self.shape.state_dim * self.shape.state_dim * 4) as u64;
        let bytes = (self.shape.state_len() * 4) as u64;
        let all = &self.states.matrices[index];
        let start = all.offset + u64::from(slot.0) * bytes + heads.start as u64 * each;
        all.buffer.slice(start, heads.len() as u64 * each)
    }

    /// Room for any part: a page of rows, a ring and one head's S may each be larger than asked for.
    fn largest_part(&self) -> usize {
        let layout = self.layout();
        let page = |side| usize::try_from(layout.page_bytes(side)).expect("a page is small");
        let head = self.shape.state_dim * self.shape.state_dim * 4;
        let smallest = page(Side::Keys).max(page(Side::Values)).max(head);
        PART_BYTES.max(smallest).max(self.shape.conv_rows_len() * 4)
    }
}

/// Bytes of codes and of scales of the pages of some rows.
fn plane_bytes(layout: &KvLayout, side: Side, rows: &Range<usize>) -> [usize; 2] {
    let pages = rows.len().div_ceil(PAGE_TOKENS);
    let ranges = layout.ranges(side, pages, 0..pages);
    ranges.map(|range| usize::try_from(range.end - range.start).expect("a part is small"))
}
