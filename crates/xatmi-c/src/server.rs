pub(crate) fn is_on_this_thread() -> bool { false }
