-- One row for each person of an OMOP database, the key first. Standard SQL: SQLite, PostgreSQL, DuckDB.
WITH measured AS (
    SELECT
        person_id,
        AVG(CASE WHEN measurement_concept_id = 3038553 THEN value_as_number END) AS bmi,
        AVG(CASE WHEN measurement_concept_id = 3004249 THEN value_as_number END) AS systolic,
        AVG(CASE WHEN measurement_concept_id = 3004410 THEN value_as_number END) AS hba1c
    FROM measurement
    GROUP BY person_id
),
visited AS (
    SELECT person_id, COUNT(*) AS visits FROM visit_occurrence GROUP BY person_id
),
known AS (
    SELECT
        person_id,
        MAX(CASE WHEN condition_concept_id = 201826 THEN 1 ELSE 0 END) AS diabetes,
        MAX(CASE WHEN condition_concept_id = 320128 THEN 1 ELSE 0 END) AS hypertension,
        MAX(CASE WHEN condition_concept_id = 316139 THEN 1 ELSE 0 END) AS heart,
        MAX(CASE WHEN condition_concept_id = 255573 THEN 1 ELSE 0 END) AS lung,
        MAX(CASE WHEN condition_concept_id = 440383 THEN 1 ELSE 0 END) AS mood
    FROM condition_occurrence
    GROUP BY person_id
)
SELECT
    person.person_id,
    2025 - person.year_of_birth AS age,
    measured.bmi,
    measured.systolic,
    measured.hba1c,
    COALESCE(visited.visits, 0) AS visits,
    COALESCE(known.diabetes, 0) AS diabetes,
    COALESCE(known.hypertension, 0) AS hypertension,
    -- No features, for the bounds do not name them: groups.toml describes the clusters by them.
    CASE person.gender_concept_id WHEN 8507 THEN 'm' WHEN 8532 THEN 'f' END AS sex,
    CASE
        WHEN known.heart = 1 THEN 'heart failure'
        WHEN known.lung = 1 THEN 'COPD'
        WHEN known.mood = 1 THEN 'depression'
        ELSE 'other'
    END AS diagnosis
FROM person
LEFT JOIN measured ON measured.person_id = person.person_id
LEFT JOIN visited ON visited.person_id = person.person_id
LEFT JOIN known ON known.person_id = person.person_id
