//! Vulkan, made safe. Every `ash` name stops at the border of this folder.
