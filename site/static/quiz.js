// On a quiz page: counts the questions that were answered rightly at the first try, in sight all
// the time. After the last one it says which notebooks to read again.
document.addEventListener("DOMContentLoaded", () => {
  const score = document.querySelector(".quiz-score");
  if (!score) return;
  const questions = [...document.querySelectorAll(".question")];
  const show = () => {
    const tried = questions.filter((question) => question.dataset.tried);
    const wrong = tried.filter((question) => question.dataset.tried === "wrong");
    const right = `${tried.length - wrong.length} of ${tried.length} right at the first try`;
    const left = questions.length - tried.length;
    score.textContent = left ? `${right}; ${left} to go.` : `Finished: ${right}.`;
    const again = new Map(wrong.map((question) => {
      const link = question.querySelector(".about a");
      return [link.href, link];
    }));
    if (left || !again.size) return;
    score.append(" Read again: ");
    [...again.values()].forEach((link, number) => score.append(number ? ", " : "", link.cloneNode(true)));
  };
  for (const question of questions)
    question.addEventListener("toggle", (event) => {
      if (!event.target.open || question.dataset.tried) return;
      question.dataset.tried = event.target.classList.contains("right") ? "right" : "wrong";
      show();
    }, true); // toggle does not bubble
});
