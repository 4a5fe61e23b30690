// Runs between require.js and the widget manager, on pages with widgets only.
// Both look for widget code on a public server unless they are told where it lies; here it lies beside this file, and
// the address has to be worked out in the page, because a page may sit at any depth of the folder.
(() => {
  const script = document.currentScript;
  const here = script.src.replace(/[^/]*$/, "");
  requirejs.config({ paths: { anywidget: here + "anywidget" } });
  script.setAttribute("data-jupyter-widgets-cdn", here); // and never anywhere else
})();

// A widget's label may hold mathematics. The widget manager asks for it in the words of MathJax 2; the page has MathJax 3.
document.addEventListener("DOMContentLoaded", () => {
  if (window.MathJax?.typesetPromise && !window.MathJax.Hub) {
    window.MathJax.Hub = { Queue: ([, , element]) => window.MathJax.typesetPromise([element]) };
  }
});

// The manager brings a Font Awesome of its own, whose files are not here. No widget of ours has an icon, and the page has
// the theme's: without this the browser looks for files that do not exist.
new MutationObserver((records) => {
  for (const record of records) {
    for (const node of record.addedNodes) {
      if (node.nodeName === "STYLE" && node.textContent.includes("@jupyter-widgets/html-manager/dist/")) node.remove();
    }
  }
}).observe(document.documentElement, { childList: true, subtree: true });
