//! The compiled kernels of one size class.

use crate::graph::Error;
use crate::graph::kernels::Dims;
use crate::graph::weights::{DeviceMixer, DeviceWeights, Linear, Moe};
use crate::kernels::conv::{self, ConvL2};
use crate::kernels::cvt::{Cvt, NormCvt};
use crate::kernels::delta::DeltaSeq;
use crate::kernels::delta_chunk::{self, DeltaChunk};
use crate::kernels::embed::{self, Embed};
use crate::kernels::flash::{self, Flash};
use crate::kernels::gates::{self, Gates};
use crate::kernels::gemm::{self, Form, Gemm, Kind, Path};
use crate::kernels::head_gate::{self, Gate, HeadGate};
use crate::kernels::mode::Mode;
use crate::kernels::moe_combine::MoeCombine;
use crate::kernels::moe_gemm::{Down, GateUp, Setup};
use crate::kernels::moe_plan::MoePlan;
use crate::kernels::mv_q8::Storage;
use crate::kernels::rope::RopeKv;
use crate::kernels::router_gemm::RouterGemm;
use crate::kernels::steer::{self, Steer};
use crate::quant::TensorType;
use crate::vulkan::Device;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Form, storage, rows and columns of a product, and whether its rows have factors.
type Product = (Form, Storage, u32, u32, bool);

/// Grouped products of one pair of expert formats, and their plan.
pub(in crate::graph) struct ExpertProducts {
    pub(in crate::graph) plan: MoePlan,
    pub(in crate::graph) gate_up: GateUp,
    pub(in crate::graph) down: Down,
}

/// How the delta rule runs over a chunk.
pub(in crate::graph) enum Delta {
    /// Token by token.
    Sequential(DeltaSeq),
    /// In blocks, on matrix units. Its operands are f16.
    Blocks(DeltaChunk),
}

impl Delta {
    fn new(device: &Arc<Device>, (tokens, mode): (u32, Mode), dims: &Dims) -> Result<Self, Error> {
        let operands = delta_chunk::Operands::preferred(device.caps(), mode);
        match operands.filter(|_| tokens.is_multiple_of(delta_chunk::BLOCK)) {
            Some(operands) => Ok(Self::Blocks(DeltaChunk::new(device, dims.heads, operands)?)),
            None => Ok(Self::Sequential(DeltaSeq::new(device, dims.heads)?)),
        }
    }

    /// Bytes of a convolved value.
    pub(in crate::graph) fn operand_bytes(&self) -> u32 {
        match self {
            Self::Sequential(_) => 4,
            Self::Blocks(_) => 2,
        }
    }

    /// Bytes of what its first dispatch leaves for the second, for so many tokens: blocks and their tails.
    pub(in crate::graph) fn scratch_bytes(&self, tokens: u32) -> (u64, u64) {
        match self {
            Self::Sequential(_) => (0, 0),
            Self::Blocks(blocks) => (blocks.scratch_bytes(tokens), blocks.tail_bytes(tokens)),
        }
    }
}

/// Kernels of a size class.
pub(in crate::graph) struct ChunkKernels {
    /// Most tokens.
    pub(in crate::graph) tokens: u32,
    pub(in crate::graph) path: Path,
    products: HashMap<Product, Gemm>,
    experts: HashMap<(TensorType, TensorType), ExpertProducts>,
    routers: HashMap<bool, RouterGemm>,
    converts: HashMap<(u32, bool), Cvt>,
    gates: HashMap<u32, Gates>,
    cores: HashMap<u32, (ConvL2, HeadGate)>,
    pub(in crate::graph) embed: Embed,
    pub(in crate::graph) norm: NormCvt,
    pub(in crate::graph) delta: Delta,
    pub(in crate::graph) rope: RopeKv,
    pub(in crate::graph) flash: Flash,
    /// Bytes of a value of the queries between the two.
    pub(in crate::graph) query_bytes: u64,
    pub(in crate::graph) combine: MoeCombine,
    pub(in crate::graph) steer: Option<Steer>,
}

impl ChunkKernels {
    pub(in crate::graph) fn new(
        device: &Arc<Device>,
        (tokens, mode): (u32, Mode),
        dims: &Dims,
        weights: &DeviceWeights,
        steered: bool,
    ) -> Result<Self, Error> {
        let path = Path::choose(mode, device.caps());
        let table = weights.embedding.storage();
        let flash = flash::path(&dims.attention, mode, device.caps());
        let steer = || Steer::new(device, dims.hidden, steer::Rows::Tokens);
        let mut made = Self {
            tokens,
            path,
            products: HashMap::new(),
            experts: HashMap::new(),
            routers: HashMap::new(),
            converts: HashMap::new(),
            gates: HashMap::new(),
            cores: HashMap::new(),
            embed: Embed::new(device, embed::Step::Tokens(tokens), table, dims.hidden)?,
            norm: NormCvt::new(device, dims.hidden, path)?,
            delta: Delta::new(device, (tokens, mode), dims)?,
            rope: RopeKv::new(device, dims.attention, flash)?,
            flash: Flash::new(device, dims.attention, flash)?,
            query_bytes: flash.query_bytes(),
            combine: MoeCombine::new(device, &dims.experts, path)?,
            steer: steered.then(steer).transpose()?,
        };
        for layer in &weights.layers {
            made.mixer(device, dims, &layer.mixer)?;
            made.moe(device, dims, &layer.moe)?;
        }
        Ok(made)
    }

    fn mixer(
        &mut self,
        device: &Arc<Device>,
        dims: &Dims,
        mixer: &DeviceMixer,
    ) -> Result<(), Error> {
        let out = self.out_form();
        match mixer {
            DeviceMixer::Recurrent(r) => {
                self.add(device, (Form::Store, false), &r.input)?;
                self.add(device, (out, false), &r.out)?;
                let gates_stride = match &r.gates {
                    Some(gates) => {
                        self.add(device, (Form::Store, false), gates)?;
                        gates.rows
                    }
                    None => r.input.rows,
                };
                self.add_core(device, dims, r.input.rows, gates_stride)
            }
            DeviceMixer::Attention(a) => {
                self.add(device, (Form::Store, false), &a.input)?;
                self.add(device, (out, false), &a.out)?;
                self.convert(device, a.out.cols, false)
            }
        }
    }

    fn add_core(
        &mut self,
        device: &Arc<Device>,
        dims: &Dims,
        stride: u32,
        gates_stride: u32,
    ) -> Result<(), Error> {
        if !self.cores.contains_key(&stride) {
            let (form, pad) = match self.delta {
                Delta::Blocks(_) => (conv::Form::F16, delta_chunk::BLOCK),
                Delta::Sequential(_) => (conv::Form::F32, 1),
            };
            let rows = conv::Rows { u_stride: stride, pad };
            let conv = ConvL2::new(device, form, dims.heads, rows)?;
            let strides = head_gate::Strides { z: stride, y: dims.inner };
            let form = if self.path.half() { head_gate::Form::F16 } else { head_gate::Form::F32 };
            let gate = HeadGate::new(device, form, dims.heads.value, Gate::Raw, strides)?;
            self.cores.insert(stride, (conv, gate));
        }
        if let Entry::Vacant(place) = self.gates.entry(gates_stride) {
            let strides = gates::Strides { alpha: gates_stride, beta: gates_stride };
            let kernel = Gates::new(device, gates::Form::Chunk, dims.heads.value, strides)?;
            place.insert(kernel);
        }
        Ok(())
    }

    fn moe(&mut self, device: &Arc<Device>, dims: &Dims, moe: &Moe) -> Result<(), Error> {
        self.add(device, (Form::SwiGlu, false), &moe.shared_in)?;
        self.add(device, (self.out_form(), true), &moe.shared_down)?;
        self.convert(device, moe.shared_down.cols, true)?;
        let q8 = moe.router.storage() == Storage::Q8;
        if !self.routers.contains_key(&q8) {
            self.routers
                .insert(q8, RouterGemm::new(device, &dims.experts, self.tokens, q8, self.path)?);
        }
        let key = (moe.gate.ty, moe.down.ty);
        if !self.experts.contains_key(&key) {
            let (sizes, tokens, path) = (dims.experts, self.tokens, self.path);
            let setup = |format| Setup { sizes, format, tokens, path };
            let gate_up = GateUp::new(device, setup(key.0))?;
            let down = Down::new(device, setup(key.1), &gate_up)?;
            let plan = MoePlan::new(device, &dims.experts, gate_up.tile_slots())?;
            self.experts.insert(key, ExpertProducts { plan, gate_up, down });
        }
        Ok(())
    }

    /// What becomes of a mixer's output: steering comes before the residual.
    pub(in crate::graph) fn out_form(&self) -> Form {
        if self.steer.is_some() { Form::Store } else { Form::Add }
    }

    /// f16 rows have factors, and the shared expert's rows its weight.
    fn key(&self, (form, weighted): (Form, bool), weights: &Linear) -> Product {
        let factor = self.path.half() || weighted;
        (form, weights.storage(), weights.rows, weights.cols, factor)
    }

    fn add(
        &mut self,
        device: &Arc<Device>,
        (form, weighted): (Form, bool),
        weights: &Linear,
    ) -> Result<(), Error> {
        let key = self.key((form, weighted), weights);
        let factor = key.4;
        if self.products.contains_key(&key) {
            return Ok(());
        }
        let shape = gemm::Shape { rows: weights.rows, k: weights.cols, tokens: self.tokens };
        let q8 = weights.storage() == Storage::Q8;
        let kind = Kind { path: self.path, form, q8, factor };
        self.products.insert(key, Gemm::new(device, shape, kind)?);
        Ok(())
    }

    fn convert(&mut self, device: &Arc<Device>, k: u32, multiply: bool) -> Result<(), Error> {
        if self.path.half() && !self.converts.contains_key(&(k, multiply)) {
            self.converts.insert((k, multiply), Cvt::new(device, k, multiply)?);
        }
        Ok(())
    }

    /// The kernel of a product; `weighted` that of the shared expert back to the residual.
    pub(in crate::graph) fn product(&self, form: Form, weighted: bool, weights: &Linear) -> &Gemm {
        &self.products[&self.key((form, weighted), weights)]
    }

    pub(in crate::graph) fn converter(&self, k: u32, multiply: bool) -> &Cvt {
        &self.converts[&(k, multiply)]
    }

    pub(in crate::graph) fn router(&self, moe: &Moe) -> &RouterGemm {
        &self.routers[&(moe.router.storage() == Storage::Q8)]
    }

    pub(in crate::graph) fn expert_products(&self, moe: &Moe) -> &ExpertProducts {
        &self.experts[&(moe.gate.ty, moe.down.ty)]
    }

    /// Convolution and output gate for projections of this width, and the gates' kernel for theirs.
    pub(in crate::graph) fn core(&self, stride: u32) -> &(ConvL2, HeadGate) {
        &self.cores[&stride]
    }

    pub(in crate::graph) fn gates(&self, stride: u32) -> &Gates {
        &self.gates[&stride]
    }

    /// Bytes of the factors of the widest expert products' inputs.
    pub(in crate::graph) fn mid_factor_bytes(&self) -> u64 {
        self.experts.values().map(|e| e.gate_up.mid_factor_bytes()).max().unwrap_or(0)
    }

    /// The smallest tile of the expert products: what their plan has room for.
    pub(in crate::graph) fn least_tile_slots(&self) -> u32 {
        self.experts.values().map(|e| e.gate_up.tile_slots()).min().unwrap_or(1)
    }
}
