//! What a driver made of a program: registers, instructions and, where it tells, the machine code. For the
//! measurements of kernels that need no hardware (module `graph::isa`), and for tuning.

use super::device::Device;
use super::error::{Error, api};
use super::pipeline::Pipeline;
use ash::vk;

/// One compiled program of a pipeline.
#[derive(Debug, Clone, Default)]
pub struct Executable {
    /// Invocations of a subgroup.
    pub subgroup: u32,
    /// Figures by the driver's names for them.
    pub figures: Vec<(String, f64)>,
    /// Texts by the driver's names for them: intermediate forms and machine code.
    pub texts: Vec<(String, String)>,
}

impl Executable {
    /// The figure of this name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.0 == name).map(|f| f.1)
    }

    /// The text of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|t| t.0 == name).map(|t| t.1.as_str())
    }
}

impl Pipeline {
    /// What the driver says about the compiled program.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device was not opened with [`super::Device::inspect`], or cannot tell.
    pub fn executable(&self) -> Result<Executable, Error> {
        let name = self.program().name;
        let fail = |why: &str| Error::Pipeline { name, why: why.to_owned() };
        let device = self.device();
        let ask =
            device.inspector().ok_or_else(|| fail("the device does not tell what it made"))?;
        self.ready()?;
        let (pipeline, _) = self.raw();
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: The pipeline is of this device, whose extension for this is on.
        let made = unsafe { ask.get_pipeline_executable_properties(&info) }
            .map_err(api("vkGetPipelineExecutablePropertiesKHR"))?;
        let Some(made) = made.first() else { return Err(fail("the driver names no program")) };
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
        // SAFETY: As above, and the pipeline has an executable of this index.
        let figures = unsafe { ask.get_pipeline_executable_statistics(&info) }
            .map_err(api("vkGetPipelineExecutableStatisticsKHR"))?;
        let figures = figures.iter().map(|s| (text(s.name_as_c_str()), value(s))).collect();
        Ok(Executable { subgroup: made.subgroup_size, figures, texts: texts(device, &info)? })
    }
}

fn text<E>(name: Result<&std::ffi::CStr, E>) -> String {
    name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn value(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> f64 {
    use vk::PipelineExecutableStatisticFormatKHR as Format;
    let value = statistic.value;
    match statistic.format {
        // SAFETY: The format says which field of the union was written.
        Format::BOOL32 => unsafe { f64::from(value.b32) },
        // SAFETY: As above.
        Format::INT64 => unsafe { value.i64 as f64 },
        // SAFETY: As above.
        Format::UINT64 => unsafe { value.u64 as f64 },
        // SAFETY: As above.
        Format::FLOAT64 => unsafe { value.f64 },
        _ => f64::NAN,
    }
}

/// The texts, whose lengths have to be asked for before their bytes.
fn texts(
    device: &Device,
    info: &vk::PipelineExecutableInfoKHR<'_>,
) -> Result<Vec<(String, String)>, Error> {
    let Some(ask) = device.inspector() else { return Ok(Vec::new()) };
    let call = api("vkGetPipelineExecutableInternalRepresentationsKHR");
    // SAFETY: The pipeline is of this device. Without room for data the call tells sizes only.
    let found = unsafe { ask.get_pipeline_executable_internal_representations(info) };
    let mut found = found.map_err(&call)?;
    let mut count = u32::try_from(found.len()).expect("a handful of texts");
    let mut bytes: Vec<Vec<u8>> = found.iter().map(|f| vec![0; f.data_size]).collect();
    for (one, bytes) in found.iter_mut().zip(&mut bytes) {
        one.p_data = bytes.as_mut_ptr().cast();
    }
    let get = ask.fp().get_pipeline_executable_internal_representations_khr;
    // SAFETY: Every element points to as many bytes as the driver asked for.
    let read = unsafe { get(device.raw().handle(), info, &raw mut count, found.as_mut_ptr()) };
    read.result().map_err(&call)?;
    let readable = found.iter().zip(&bytes).filter(|(one, _)| one.is_text == vk::TRUE);
    Ok(readable
        .map(|(one, bytes)| {
            let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
            (text(one.name_as_c_str()), String::from_utf8_lossy(&bytes[..end]).into_owned())
        })
        .collect())
}
