//! The loader and the instance. Opening them is the first thing that can fail on a machine without
//! Vulkan, so both failures say what to do.
//!
//! With validation on, everything the layer says is collected: tests fail on any message.

use super::error::{Error, api};
use ash::vk;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};

const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";
const LAYER_NAME: &str = "VK_LAYER_KHRONOS_validation";

/// How much of the Khronos layer is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// None.
    #[default]
    Off,
    /// The core checks.
    Core,
    /// Core checks and synchronization validation, which knows hazards between dispatches.
    Synchronization,
}

/// A loaded Vulkan.
pub struct Instance {
    debug: Option<Messenger>,
    raw: ash::Instance,
    // Declared last: unloading the library must come after everything that calls into it.
    entry: ash::Entry,
}

/// The debug messenger and what it has heard.
struct Messenger {
    functions: ash::ext::debug_utils::Instance,
    handle: vk::DebugUtilsMessengerEXT,
    // The driver holds a pointer to this until the messenger is destroyed.
    heard: Box<Mutex<Vec<String>>>,
}

impl Instance {
    /// Loads the library and creates an instance of Vulkan 1.3.
    ///
    /// # Errors
    /// [`Error::Loader`] without Vulkan, [`Error::Instance`] with one that is too old,
    /// [`Error::NoLayer`] when validation is asked for and not installed.
    pub fn new(validation: Validation) -> Result<Arc<Self>, Error> {
        // SAFETY: The library is the system's Vulkan loader; its initialisers are trusted as those of
        // every linked library are.
        let entry = unsafe { ash::Entry::load() }.map_err(|e| Error::Loader(e.to_string()))?;
        // SAFETY: The entry is loaded.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(|e| Error::Instance(e.to_string()))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_3 {
            let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
            return Err(Error::Instance(format!(
                "the loader knows Vulkan {major}.{minor}, not 1.3"
            )));
        }
        let checked = validation != Validation::Off;
        if checked && !has_layer(&entry)? {
            return Err(Error::NoLayer(LAYER_NAME));
        }
        let raw = create(&entry, validation)?;
        let mut instance = Self { debug: None, raw, entry };
        if checked {
            instance.debug = Some(Messenger::new(&instance.entry, &instance.raw)?);
        }
        Ok(Arc::new(instance))
    }

    /// The messages heard so far, taken out.
    pub fn messages(&self) -> Vec<String> {
        let Some(debug) = &self.debug else { return Vec::new() };
        std::mem::take(&mut *debug.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether messages are collected.
    pub fn is_validating(&self) -> bool {
        self.debug.is_some()
    }

    pub(super) fn raw(&self) -> &ash::Instance {
        &self.raw
    }

    pub(super) fn entry(&self) -> &ash::Entry {
        &self.entry
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The messenger goes first: it belongs to the instance.
        self.debug = None;
        // SAFETY: Devices hold an `Arc` of the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

fn has_layer(entry: &ash::Entry) -> Result<bool, Error> {
    // SAFETY: The entry is loaded.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(api("vkEnumerateInstanceLayerProperties"))?;
    Ok(layers.iter().any(|l| l.layer_name_as_c_str().is_ok_and(|name| name == LAYER)))
}

fn create(entry: &ash::Entry, validation: Validation) -> Result<ash::Instance, Error> {
    // SAFETY: The entry is loaded; no layer is named.
    let offered = unsafe { entry.enumerate_instance_extension_properties(None) }
        .map_err(api("vkEnumerateInstanceExtensionProperties"))?;
    let offers = |name: &CStr| {
        offered.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|found| found == name))
    };
    let mut extensions = Vec::new();
    let mut flags = vk::InstanceCreateFlags::empty();
    // Without this, layered drivers are not even listed.
    if offers(ash::khr::portability_enumeration::NAME) {
        extensions.push(ash::khr::portability_enumeration::NAME.as_ptr());
        flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
    }
    let mut layers = Vec::new();
    let mut enabled = Vec::new();
    if validation != Validation::Off {
        layers.push(LAYER.as_ptr());
        extensions.push(ash::ext::debug_utils::NAME.as_ptr());
    }
    if validation == Validation::Synchronization {
        extensions.push(ash::ext::validation_features::NAME.as_ptr());
        enabled.push(vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION);
    }
    let application =
        vk::ApplicationInfo::default().application_name(c"q36").api_version(vk::API_VERSION_1_3);
    let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enabled);
    let mut info = vk::InstanceCreateInfo::default()
        .flags(flags)
        .application_info(&application)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&extensions);
    if !enabled.is_empty() {
        info = info.push_next(&mut features);
    }
    // SAFETY: Every pointer in the structure outlives the call; names are null-terminated constants.
    unsafe { entry.create_instance(&info, None) }.map_err(|code| match code {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => Error::NoDriver,
        other => Error::Instance(other.to_string()),
    })
}

impl Messenger {
    fn new(entry: &ash::Entry, instance: &ash::Instance) -> Result<Self, Error> {
        let functions = ash::ext::debug_utils::Instance::new(entry, instance);
        let heard = Box::new(Mutex::new(Vec::new()));
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                    | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
            )
            // Not GENERAL: there the loader reports unrelated drivers that it could not open.
            .message_type(
                vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                    | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
            )
            .pfn_user_callback(Some(hear))
            .user_data(std::ptr::from_ref::<Mutex<Vec<String>>>(&heard).cast_mut().cast());
        // SAFETY: The callback has the required signature, and its user data lives in a box that this
        // object keeps until the messenger is destroyed.
        let handle = unsafe { functions.create_debug_utils_messenger(&info, None) }
            .map_err(api("vkCreateDebugUtilsMessengerEXT"))?;
        Ok(Self { functions, handle, heard })
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        // SAFETY: Created by `new`, destroyed once, before its instance.
        unsafe { self.functions.destroy_debug_utils_messenger(self.handle, None) };
    }
}

/// Called by the layer, from whatever thread made the offending call.
unsafe extern "system" fn hear(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: `user` is the pointer given in `Messenger::new`, alive as long as the messenger.
    let heard = unsafe { &*user.cast::<Mutex<Vec<String>>>() };
    // SAFETY: The layer passes a valid structure for the time of the call.
    let text = unsafe { (*data).message_as_c_str() };
    let text = text.map_or_else(String::new, |t| t.to_string_lossy().into_owned());
    heard.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    vk::FALSE
}
