// For browsers of before 2024, which lack what the page is written in, and for a page of which a file did not come:
// in the language of 2009.
document.addEventListener("DOMContentLoaded", function () {
  var able = window.CSS && CSS.supports && CSS.supports("color", "light-dark(#000, #fff)") && CSS.supports("selector(:has(a))");
  if (!able || !Array.prototype.toSorted) document.getElementById("old").removeAttribute("hidden");
});
// Without one of its files the page would say "connecting" for ever. Such an event does not bubble.
window.addEventListener("error", function (event) {
  var part = event.target;
  if (part.tagName === "SCRIPT" || part.rel === "stylesheet") setTimeout(function () { location.reload(); }, 2000);
}, true);
