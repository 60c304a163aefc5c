// Browsers of before 2024 lack what the page is written in; this file is for them, in the language of 2009.
document.addEventListener("DOMContentLoaded", function () {
  var able = window.CSS && CSS.supports && CSS.supports("color", "light-dark(#000, #fff)") && CSS.supports("selector(:has(a))");
  if (!able || !Array.prototype.toSorted) document.getElementById("old").removeAttribute("hidden");
});
