// Counts, on a quiz page, how many questions were answered rightly at the first try.
document.addEventListener("DOMContentLoaded", () => {
  const score = document.querySelector(".quiz-score");
  if (!score) return;
  let asked = 0, right = 0;
  for (const question of document.querySelectorAll(".question"))
    question.addEventListener("toggle", (event) => {
      if (!event.target.open || question.dataset.tried) return;
      question.dataset.tried = "yes";
      asked += 1;
      right += event.target.classList.contains("right") ? 1 : 0;
      score.textContent = `${right} of ${asked} right at the first try; ${score.dataset.questions - asked} to go.`;
    }, true); // toggle does not bubble
});
