// What keyboards and screen readers need beyond the theme: names of the two side bars, and a way
// into everything that scrolls by itself.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  for (const part of document.querySelectorAll("pre, .picture, .table-wrapper")) {
    part.setAttribute("tabindex", "0");
  }
});
