
// The end of every figure in a notebook; widgets.py puts it behind the figure's own module, which it calls figure_.
//
// JupyterLab has shortcuts of one key: arrows leave the cell, b inserts one. It leaves a key to a control that has the
// attribute below, on the control itself and not on what is around it. Figures make controls anew while they move.
const CONTROLS_ = "input, select, button, textarea, summary, [tabindex]";
const keep_keys_ = (el) => {
  for (const control of el.querySelectorAll(CONTROLS_)) control.setAttribute("data-lm-suppress-shortcuts", "true");
};
export default {
  ...figure_,
  async render(context) {
    const done = await figure_.render(context);
    keep_keys_(context.el);
    const watcher = new MutationObserver(() => keep_keys_(context.el));
    watcher.observe(context.el, { childList: true, subtree: true });
    return () => { watcher.disconnect(); done?.(); };
  },
};
