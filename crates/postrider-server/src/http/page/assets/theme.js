// Runs before the first paint, so that a dark screen does not flash white. This browser remembers the
// choice.
(() => {
  const chosen = localStorage.getItem('postrider-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
