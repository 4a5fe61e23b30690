
import logging, pytest, warnings

@pytest.mark.parametrize("category", [FutureWarning, DeprecationWarning, PendingDeprecationWarning])
def test_a_category(category):
    warnings.warn("use the other", category)

def test_a_log():
    logging.getLogger("transformers.modeling_utils").warning("`torch_dtype` is deprecated! Use `dtype` instead!")

def test_another_log():
    logging.getLogger("transformers.modeling_utils").warning("some weights are new")
