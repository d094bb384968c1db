// Before the first paint, so that a dark screen does not flash white. The choice is this browser's.
(() => {
  const chosen = localStorage.getItem('postrider-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
